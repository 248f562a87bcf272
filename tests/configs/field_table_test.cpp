#include "configs/fields/field_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "configs/load_config.hpp"

namespace train::configs::field_table_test {
namespace {

const std::string kReadme = ACTORTRAIN_SOURCE_DIR "/configs/README.md";

std::string readme() {
  std::ifstream file(kReadme);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

RunConfig valid_config() {
  RunConfig config;
  config.run.name = std::string("a");
  config.model.arch = std::string("enoki");
  config.data.dir = std::string("d");
  return config;
}

TEST_CASE("field_table: a key is found by its whole name", "[configs][field_table][CF-1]") {
  for (const Field& field : all_fields()) {
    CHECK(find_field(field.key()) == &field);
    CHECK(field.sentence.ends_with('.'));
  }
  CHECK(find_field("run.nothing") == nullptr);
  CHECK(find_field("") == nullptr);
}

TEST_CASE("field_table: no two keys share a place", "[configs][field_table][CF-1]") {
  RunConfig config;
  std::set<const void*> places;
  for (const Field& field : all_fields()) {
    std::visit([&](auto* value) { places.insert(value); }, field.locate(config));
  }
  CHECK(places.size() == all_fields().size());
}

TEST_CASE("field_table: every default is valid where a key is optional", "[configs][field_table]") {
  CHECK(parse_config(to_toml(valid_config()), "defaults").ok());
}

TEST_CASE("field_table: a written configuration reads back bit for bit",
          "[configs][field_table][CF-2][exhaustive]") {
  std::mt19937_64 random(Catch::rngSeed());
  for (int round = 0; round < 200; ++round) {
    RunConfig config = valid_config();
    std::uniform_real_distribution<double> unit(0.0, 1.0);
    config.run.seed = random() >> 2;
    config.run.name = fmt::format("n{}", random());
    config.run.sample_prompt = std::string("quote\" back\\slash\ttab\nline\r\x01\x7f é ") +
                               static_cast<char>('a' + random() % 26);
    config.run.tensorboard = random() % 2 == 0;
    config.optimizer.lr = std::exp(-20.0 * unit(random));
    config.optimizer.beta1 = unit(random);
    config.optimizer.eps = std::numeric_limits<float>::min();
    config.optimizer.weight_decay = std::numeric_limits<double>::denorm_min();
    config.model.rope_theta = 1e12 * unit(random) + 1;
    config.parallel.reshard = random() % 2 == 0 ? "never" : fmt::format("{}", 2 + random() % 60000);
    config.parallel.sync = random() % 2 == 0 ? "last_lane" : "3";
    config.memory.activation_checkpointing = random() % 2 == 0 ? "all" : "2";
    config.runtime.device = random() % 2 == 0 ? "cuda" : "cpu";
    config.memory.offload = config.runtime.device == "cuda" ? "optimizer" : "none";
    config.memory.checkpointed_part = random() % 2 == 0 ? "mlp" : "attention";
    config.parallel.wrapping = {"block \"[0-3]\"\\", "he?d\t\n*"};
    config.batch.radix = {2 + static_cast<std::int64_t>(random() % 60000), 2};
    config.train.freeze.assign(random() % 3, config.run.name);
    const Result<RunConfig> back = parse_config(to_toml(config), "round");
    REQUIRE(back.ok());
    for (const Field& field : all_fields()) {
      INFO(field.key());
      RunConfig left = config;
      RunConfig right = *back;
      const bool same = std::visit(
          [&](auto* value) { return *value == *std::get<decltype(value)>(field.locate(right)); },
          field.locate(left));
      CHECK(same);
    }
    CHECK(to_toml(*back) == to_toml(config));
  }
}

TEST_CASE("field_table: numbers and words of one key are written as TOML has them",
          "[configs][field_table][CF-2]") {
  RunConfig config = valid_config();
  const Field& reshard = *find_field("parallel.reshard");
  config.parallel.reshard = std::string("4");
  CHECK(toml_value(reshard, config) == "4");
  config.parallel.reshard = std::string("never");
  CHECK(toml_value(reshard, config) == "\"never\"");
  CHECK(toml_value(*find_field("parallel.wrapping"), config) == "[\"by_size\"]");
  CHECK(toml_value(*find_field("train.freeze"), config) == "[]");
  CHECK(toml_value(*find_field("batch.radix"), config) == "[2]");
  for (const char* text : {"", "+4", "04", " 4", "4 ", "-4", "4.0", "99999999999999999999"}) {
    INFO(text);
    CHECK_FALSE(whole_number(text).has_value());
  }
  CHECK(whole_number("0") == 0);
  CHECK(whole_number("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("field_table: every key says what it may do between starts of a run",
          "[configs][field_table]") {
  for (const Field& field : all_fields()) {
    INFO(field.key() << " says nothing: does another value change what the run computes?");
    CHECK(field.between_starts != BetweenStarts::unsaid);
  }
}

namespace {

/// All that decides no bit of the weights. Whoever adds one has looked where its value goes.
const std::set<std::string> kMayChange = {"run.name",
                                          "run.dir",
                                          "run.steps_per_job",
                                          "run.log_interval_steps",
                                          "run.digest_interval_steps",
                                          "run.sample_prompt",
                                          "run.sample_tokens",
                                          "run.sample_interval_steps",
                                          "run.sample_prompts",
                                          "run.sample_chats",
                                          "run.sample_temperature",
                                          "run.sample_seed",
                                          "run.tensorboard",
                                          "data.dir",
                                          "data.forget_dir",
                                          "scaling.rule",
                                          "scaling.heads",
                                          "scaling.params",
                                          "scaling.tokens_per_parameter",
                                          "scaling.omega",
                                          "scaling.table",
                                          "eval.interval_steps",
                                          "eval.lanes",
                                          "eval.choices",
                                          "eval.choices_interval_steps",
                                          "checkpoint.interval_steps",
                                          "checkpoint.keep_last",
                                          "checkpoint.keep_every",
                                          "checkpoint.keep_best",
                                          "checkpoint.local_dir",
                                          "checkpoint.drain_s",
                                          "recovery.rank_loss",
                                          "recovery.max_respawns",
                                          "recovery.start_wait_s",
                                          "recovery.node_wait_s",
                                          "recovery.snapshot_interval_steps",
                                          "recovery.buddy_snapshots",
                                          "watchdog.stall_s",
                                          "watchdog.abort_after_s",
                                          "status.listen",
                                          "status.token_file",
                                          "parallel.ranks",
                                          "parallel.strategy",
                                          "parallel.group",
                                          "parallel.reshard",
                                          "parallel.wrapping",
                                          "parallel.wrap_min_parameters",
                                          "parallel.strategy_by_unit",
                                          "parallel.gather_credits",
                                          "parallel.prefetch_forward",
                                          "parallel.prefetch_backward",
                                          "parallel.sync",
                                          "parallel.transport",
                                          "parallel.nodes",
                                          "parallel.interface",
                                          "parallel.port",
                                          "memory.activation_checkpointing",
                                          "memory.checkpointed_part",
                                          "memory.offload",
                                          "memory.bf16_weights",
                                          "train.stop_after.metric",
                                          "train.stop_after.patience",
                                          "runtime.threads",
                                          "runtime.device"};

}  // namespace

TEST_CASE("field_table: of these keys alone a run that goes on may have another value",
          "[configs][field_table]") {
  for (const Field& field : all_fields()) {
    INFO(field.key());
    const bool allowed = !stays(field.between_starts);
    CHECK(allowed == (field.key() == "run.steps" || kMayChange.contains(field.key())));
  }
  CHECK(find_field("run.steps")->between_starts == BetweenStarts::warns);
  CHECK(find_field("data.dir")->between_starts == BetweenStarts::may_move);
}

TEST_CASE("field_table: learning rates, schedules and weights of losses can be accepted",
          "[configs][field_table]") {
  for (const char* key : {"optimizer.lr", "optimizer.weight_decay", "schedule.name",
                          "schedule.warmup_steps", "objective.beta", "model.z_loss_coeff"}) {
    CHECK(find_field(key)->between_starts == BetweenStarts::on_request);
  }
}

TEST_CASE("field_table: the README's table is the code's", "[configs][field_table][CF-1]") {
  const std::string table = describe_keys_markdown();
  INFO("`./dev docs` renews the table");
  CHECK(readme().ends_with(table));
  for (const Field& field : all_fields()) {
    CHECK(table.find(fmt::format("`{}`", field.key())) != std::string::npos);
    CHECK(table.find(field.sentence) != std::string::npos);
  }
}

TEST_CASE("field_table: the README's table is written anew", "[.write]") {
  const std::string table = describe_keys_markdown();
  const std::string before = readme();
  const std::size_t begin = before.find(table.substr(0, table.find('\n')));
  REQUIRE(begin != std::string::npos);
  std::ofstream file(kReadme);
  file << before.substr(0, begin) << table;
  REQUIRE(file.flush());
}

TEST_CASE("field_table: the keys of a section are readable at 100 columns",
          "[configs][field_table]") {
  const std::string model = describe_keys("model");
  std::istringstream lines(model);
  std::size_t keys = 0;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 100);
    keys += line.starts_with("model.") ? 1U : 0U;
  }
  CHECK(keys ==
        static_cast<std::size_t>(std::ranges::count(all_fields(), "model", &Field::section)));
  CHECK(model.find("model.layers                       0 blocks  (0 .. 4096)\n"
                   "  Transformer blocks; ") != std::string::npos);
  CHECK(describe_keys("run.st").starts_with("run.steps "));
  CHECK(describe_keys("no").empty());
}

TEST_CASE("field_table: ranges print as a reader expects", "[configs][field_table]") {
  CHECK(allowed_values(*find_field("run.steps")) == "1 .. 1000000000");
  CHECK(allowed_values(*find_field("optimizer.beta1")) == "0 <= x < 1");
  CHECK(allowed_values(*find_field("model.arch")) == "\"enoki\", \"dstar_qwen3\", \"qwen3\"");
  CHECK(allowed_values(*find_field("model.qk_norm")) == "true, false");
  CHECK(type_name(*find_field("run.seed")) == "integer");
  CHECK(type_name(*find_field("optimizer.lr")) == "number");
  CHECK(type_name(*find_field("run.name")) == "text");
  CHECK(type_name(*find_field("run.tensorboard")) == "boolean");
  CHECK(type_name(*find_field("parallel.reshard")) == "text or integer");
  CHECK(allowed_values(*find_field("parallel.reshard")) ==
        "\"never\", \"after_forward\", 2 .. 65536");
  CHECK(type_name(*find_field("batch.radix")) == "list of integers");
  CHECK(allowed_values(*find_field("batch.radix")) == "2 .. 65536");
  CHECK(type_name(*find_field("train.freeze")) == "list of texts");
  CHECK(allowed_values(*find_field("train.freeze")) == "any");
}

}  // namespace
}  // namespace train::configs::field_table_test
