#include "configs/fields/optimizer_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "configs/load_config.hpp"

namespace train::configs::optimizer_table_test {
namespace {

Result<RunConfig> with(const std::string& section) {
  return parse_config(fmt::format("[run]\nname = \"x\"\n[model]\narch = \"enoki\"\n[data]\n"
                                  "dir = \"d\"\n[optimizer]\n{}\n",
                                  section),
                      "run.toml");
}

std::string refusal(const std::string& section) {
  const auto config = with(section);
  if (config.ok()) {
    return "";
  }
  CHECK(config.error().kind == ErrorKind::user);
  return config.error().message;
}

RunConfig of(const std::string& name) {
  auto config = with(fmt::format("name = \"{}\"", name));
  REQUIRE(config.ok());
  return *config;
}

}  // namespace

TEST_CASE("optimizer_table: the names of the key are those of the table", "[configs][CF-1]") {
  const std::vector<std::string> choices = split_choices(*find_field("optimizer.name"));
  REQUIRE(choices.size() == all_optimizers().size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    CHECK(choices[i] == all_optimizers()[i].name);
  }
}

TEST_CASE("optimizer_table: every key belongs to somebody, and every default is valid",
          "[configs][CF-1]") {
  std::set<std::string> owned = {"optimizer.name"};
  for (const NamedOptions& entry : all_optimizers()) {
    const RunConfig config = of(std::string(entry.name));
    const OptimizerSection defaults = default_optimizer(entry.name);
    CHECK(config.optimizer.weight_decay == defaults.weight_decay);
    CHECK(config.optimizer.beta2 == defaults.beta2);
    for (const OptionKey& key : entry.keys) {
      owned.insert(fmt::format("optimizer.{}", key.name));
    }
  }
  for (const Field& field : all_fields()) {
    CHECK((field.section != "optimizer" || owned.contains(field.key())));
  }
  const OptimizerSection built_in;
  const OptimizerSection adamw = default_optimizer("adamw");
  CHECK(adamw.lr == built_in.lr);
  CHECK(adamw.beta2 == built_in.beta2);
  CHECK(adamw.weight_decay == built_in.weight_decay);
}

TEST_CASE("optimizer_table: defaults are the optimizer's own, what is given stays", "[configs]") {
  CHECK(of("adamw").optimizer.beta2 == 0.95);
  CHECK(of("ademamix").optimizer.beta2 == 0.999);
  CHECK(of("d-muon").optimizer.beta1 == 0.8);
  CHECK(of("muon").optimizer.weight_decay == 0.01);
  CHECK(of("dana-star-mk4").optimizer.clipsnr == 2.0);
  const auto given = with("name = \"ademamix\"\nbeta2 = 0.95\nweight_decay = 0.2");
  REQUIRE(given.ok());
  CHECK(given->optimizer.beta2 == 0.95);
  CHECK(given->optimizer.weight_decay == 0.2);
  CHECK(given->optimizer.beta1 == 0.9);
  // The order in the file does not matter: the name is known before any default is taken.
  const auto before = with("beta2 = 0.95\nname = \"ademamix\"");
  REQUIRE(before.ok());
  CHECK(before->optimizer.beta2 == 0.95);
}

TEST_CASE("optimizer_table: an option of another optimizer names its line and its owners",
          "[configs]") {
  CHECK(refusal("name = \"adamw\"\nclipsnr = 2.0") ==
        "run.toml:9: optimizer.clipsnr is not an option of optimizer.name = \"adamw\"; remove it, "
        "or choose one that has it: dana-mk4, dana-star-mk4");
  CHECK(refusal("name = \"adana\"\nclipsnr = 2.0").starts_with("run.toml:9: optimizer.clipsnr"));
  CHECK(refusal("name = \"adana\"\nbeta1 = 0.9").find("adamw, adamw-decaying-wd, ademamix") !=
        std::string::npos);
  CHECK(refusal("name = \"muon\"\nkappa = 0.85").starts_with("run.toml:9: optimizer.kappa"));
  CHECK(refusal("momentum = 0.9").find("one that has it: muon, d-muon") != std::string::npos);
  CHECK(refusal("wd_ts = 10").starts_with("run.toml:8: optimizer.wd_ts"));
  const std::vector<std::string> overrides = {"optimizer.nesterov=false"};
  const auto config = parse_config("[run]\nname = \"x\"\n", "run.toml", overrides);
  REQUIRE_FALSE(config.ok());
  CHECK(config.error().message.find("--set optimizer.nesterov=false: optimizer.nesterov is not an "
                                    "option of optimizer.name = \"adamw\"") != std::string::npos);
}

TEST_CASE("optimizer_table: ranges of the options", "[configs]") {
  for (const char* wrong :
       {"name = \"adana\"\ndelta = 0", "name = \"adana\"\nkappa = -0.1",
        "name = \"dana-mk4\"\nclipsnr = 0", "name = \"adana\"\nwd_ts = 0",
        "name = \"adana\"\nwd_coupling = \"lr\"", "name = \"ademamix\"\nbeta3 = 1.0",
        "name = \"ademamix\"\nalpha = -1", "name = \"muon\"\nmomentum = 1.0",
        "name = \"muon\"\nns_steps = 0", "name = \"muon\"\nmatched_rms = 0"}) {
    CAPTURE(wrong);
    CHECK(refusal(wrong).starts_with("run.toml:9: optimizer."));
  }
  CHECK(refusal("name = \"ademamix\"\n[run.x]").find("unknown") != std::string::npos);
  CHECK(refusal("name = \"ademamix\"\nbeta1 = 0\nbeta3_warmup = 5").find("must be above 0 then") !=
        std::string::npos);
  CHECK(refusal("name = \"ademamix\"\ndelta = 1e9").find("set optimizer.beta3") !=
        std::string::npos);
}

TEST_CASE("optimizer_table: what is written has the optimizer's keys alone, and reads back",
          "[configs][CF-2]") {
  for (const NamedOptions& entry : all_optimizers()) {
    CAPTURE(entry.name);
    const RunConfig config = of(std::string(entry.name));
    const std::string text = to_toml(config);
    const std::size_t begin = text.find("[optimizer]");
    const std::string section = text.substr(begin, text.find("\n[", begin + 1) - begin);
    const auto keys = std::count(section.begin(), section.end(), '=');
    CHECK(keys == static_cast<std::ptrdiff_t>(entry.keys.size()) + 1);
    const auto back = parse_config(text, "again");
    REQUIRE(back.ok());
    CHECK(to_toml(*back) == text);
    for (const Field& field : all_fields()) {
      RunConfig left = config;
      RunConfig right = *back;
      CHECK(std::visit(
          [&](auto* value) { return *value == *std::get<decltype(value)>(field.locate(right)); },
          field.locate(left)));
    }
  }
}

TEST_CASE("optimizer_table: a scaling rule sets the decay of the optimizer at hand",
          "[configs][scaling]") {
  const auto scaled = [](const std::string& optimizer) {
    auto config = parse_config(
        fmt::format("[run]\nname = \"x\"\n[data]\ndir = \"d\"\n[optimizer]\n{}\n[scaling]\n"
                    "rule = \"enoki\"\nheads = 4\n",
                    optimizer),
        "run.toml");
    INFO((config.ok() ? std::string() : config.error().message));
    REQUIRE(config.ok());
    // Written out, the run needs no rule any more.
    const auto back = parse_config(to_toml(*config), "again");
    REQUIRE(back.ok());
    CHECK(to_toml(*back) == to_toml(*config));
    return *config;
  };
  const RunConfig adana = scaled("name = \"adana\"");
  CHECK(adana.optimizer.wd_ts == static_cast<double>(adana.run.steps / 10));
  CHECK(adana.optimizer.weight_decay == 4.0 / adana.optimizer.wd_ts);
  const RunConfig coupled = scaled("name = \"adana\"\nwd_coupling = \"lr_coupled\"");
  CHECK(coupled.optimizer.weight_decay ==
        Approx(adana.optimizer.weight_decay / adana.optimizer.lr).epsilon(1e-14));
  const RunConfig adamw = scaled("name = \"adamw\"");
  CHECK(adamw.optimizer.wd_ts == OptimizerSection{}.wd_ts);
  CHECK(adamw.optimizer.weight_decay ==
        Approx(4.0 / (adamw.optimizer.lr * static_cast<double>(adamw.run.steps))).epsilon(1e-14));
}

}  // namespace train::configs::optimizer_table_test
