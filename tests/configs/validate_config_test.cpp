#include "configs/validate_config.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "configs/field_table.hpp"
#include "configs/load_config.hpp"

namespace train::configs {
namespace {

const std::vector<std::string> kBase = {"run.name=a", "model.arch=enoki", "data.dir=d"};

// "" if the overrides make a valid configuration, else the message.
std::string verdict(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = kBase;
  all.insert(all.end(), overrides.begin(), overrides.end());
  const Result<RunConfig> result = parse_config("", "x.toml", all);
  return result.ok() ? "" : result.error().message;
}

void check_refused(const std::string& override_text, const std::string& part) {
  const std::string message = verdict({override_text});
  INFO(override_text << " -> " << message);
  CHECK(message.starts_with("--set " + override_text + ": "));
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("validate_config: values out of range are refused with the range",
          "[configs][validate_config]") {
  check_refused("run.steps=0", "must be 1 .. 1000000000, found 0");
  check_refused("run.steps=-5", "found -5");
  check_refused("run.seed=-1", "must be 0 ..");
  check_refused("data.sequence_length=1", "must be 2 ..");
  check_refused("batch.lanes=0", "must be 1 ..");
  check_refused("batch.micro_batch=0", "must be 1 ..");
  check_refused("model.heads=0", "must be 1 ..");
  check_refused("model.layers=-1", "must be 0 ..");
  check_refused("optimizer.lr=0", "must be 0 < x");
  check_refused("optimizer.lr=-1e-3", "must be 0 < x");
  check_refused("optimizer.lr=nan", "found nan");
  check_refused("optimizer.lr=inf", "found inf");
  check_refused("optimizer.weight_decay=-inf", "found -inf");
  check_refused("optimizer.beta1=1.0", "must be 0 <= x < 1");
  check_refused("optimizer.beta2=-0.1", "must be 0 <= x < 1");
  check_refused("optimizer.eps=0", "must be 0 < x");
  check_refused("schedule.div_factor=0", "must be 0 < x");
  check_refused("checkpoint.keep_last=-1", "must be 0 ..");
}

TEST_CASE("validate_config: names list what is allowed and the nearest",
          "[configs][validate_config]") {
  check_refused("model.arch=enoky", "\"enoki\", \"qwen3\"; did you mean \"enoki\"?");
  check_refused("model.init_scheme=scaled", "\"karpathy_gpt2\"");
  check_refused("optimizer.name=adam", "supports \"adamw\"");
  check_refused("schedule.name=cosine", "\"cos\", \"cos_inf\", \"constant\"");
  check_refused("data.order=shuffle", "\"lanes\"");
  check_refused("parallel.strategy=full", "this version supports \"none\"");
  check_refused("parallel.ranks=2", "not supported by this version");
  check_refused("runtime.device=cuda", "this version supports \"cpu\"");
}

TEST_CASE("validate_config: the run's name stays inside its directory",
          "[configs][validate_config]") {
  check_refused("run.name=", "is empty");
  check_refused("run.name=../x", "one directory below run.dir");
  check_refused("run.name=a/b", "one directory below run.dir");
  check_refused("run.name=..", "one directory below run.dir");
  check_refused("run.name=\"a\\u0007\"", "printable");
  check_refused("run.name=\"a\\u0000\"", "zero byte");
  CHECK(verdict({"run.name=" + std::string(201, 'n')}).find("200 bytes") != std::string::npos);
  CHECK(verdict({"run.name=..a"}).empty());
  check_refused("run.dir=", "is empty");
  check_refused("data.dir=", "is empty");
}

TEST_CASE("validate_config: rules between keys", "[configs][validate_config]") {
  check_refused("model.head_dim=33", "must be even");
  CHECK(verdict({"run.steps=10", "schedule.warmup_steps=9"}).empty());
  CHECK(verdict({"run.steps=10", "schedule.warmup_steps=10"})
            .starts_with("--set schedule.warmup_steps=10: "));
  CHECK(verdict({"schedule.name=cos", "schedule.warmup_steps=1"}).empty());
  check_refused("schedule.constant_tail_steps=3", "belongs to schedule \"cos_inf\"");
  CHECK(verdict({"schedule.name=cos_inf", "run.steps=10", "schedule.warmup_steps=4",
                 "schedule.constant_tail_steps=6"})
            .empty());
  CHECK(verdict({"schedule.name=cos_inf", "run.steps=10", "schedule.warmup_steps=4",
                 "schedule.constant_tail_steps=7"})
            .find("exceed run.steps (10)") != std::string::npos);
}

TEST_CASE("validate_config: sizes are bounded before anything multiplies them",
          "[configs][validate_config][CF-3]") {
  check_refused("batch.lanes=1000000000000000", "must be 1 .. 65536");
  check_refused("batch.micro_batch=1000000000000000", "must be 1 .. 65536");
  check_refused("model.vocab_size=9223372036854775807", "must be 0 ..");
  CHECK(verdict({"batch.micro_batch=65536", "data.sequence_length=1048576"})
            .find("tokens a lane; at most 2147483647 fit") != std::string::npos);
  CHECK(verdict({"batch.lanes=65536", "batch.micro_batch=64", "data.sequence_length=2048"})
            .find("--set batch.lanes=65536: batch.lanes times") == 0);
  CHECK(verdict({"eval.lanes=65536", "batch.micro_batch=64", "data.sequence_length=2048"})
            .find("--set eval.lanes=65536: eval.lanes times") == 0);
  CHECK(
      verdict({"batch.lanes=65536", "batch.micro_batch=32", "data.sequence_length=2048"}).empty());
}

TEST_CASE("validate_config: every number at either end of its range never overflows",
          "[configs][validate_config][CF-3]") {
  for (const Field& field : all_fields()) {
    for (const bool highest : {false, true}) {
      RunConfig config;
      config.run.name = std::string("a");
      config.model.arch = std::string("enoki");
      config.data.dir = std::string("d");
      const bool number = std::visit(
          [&](auto* value) {
            using Value = std::remove_pointer_t<decltype(value)>;
            if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
              *value = highest ? std::numeric_limits<Value>::max()
                               : std::numeric_limits<Value>::lowest();
              return highest || std::is_signed_v<Value>;
            } else {
              return false;
            }
          },
          field.locate(config));
      if (number) {
        INFO(field.key());
        const Status status = validate_config(config, Places{"x.toml", {}});
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().message.starts_with("x.toml: " + field.key() + " must be "));
      }
    }
  }
}

TEST_CASE("validate_config: a key of the file is named with its line",
          "[configs][validate_config]") {
  const Result<RunConfig> result = parse_config(
      "[run]\nname = \"a\"\nsteps = 0\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n", "x.toml");
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message == "x.toml:3: run.steps must be 1 .. 1000000000, found 0");
}

}  // namespace
}  // namespace train::configs
