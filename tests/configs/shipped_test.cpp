// Every run that is shipped loads, says what it should, and survives being written out again.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "configs/fields/field_table.hpp"
#include "configs/load_config.hpp"

namespace train::configs::shipped_test {
namespace {

const std::set<std::string> kShipped = {
    "quickstart.toml",        "quickstart_2_ranks.toml", "tiny_cpu.toml",
    "qwen3_tiny.toml",        "enoki_3h_adana.toml",     "qwen3_2h_danastar.toml",
    "dpo_smollm2.toml",       "smollm2_lora.toml",       "smollm2_sft.toml",
    "dpo_smollm2_hours.toml", "smollm2_lora_hours.toml", "unlearn_neox.toml"};
const std::filesystem::path kFolder = ACTORTRAIN_SOURCE_DIR "/configs";

TEST_CASE("shipped: the folder holds exactly the runs that are tested", "[configs][shipped]") {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    // The scaling rules are no run; scaling_test.cpp reads them.
    if (entry.path().extension() == ".toml" && entry.path().stem() != "scaling_rules") {
      found.insert(entry.path().filename().string());
    }
  }
  CHECK(found == kShipped);
}

TEST_CASE("shipped: every run loads and round-trips", "[configs][shipped][CF-2]") {
  for (const std::string& name : kShipped) {
    const Result<RunConfig> config = load_config((kFolder / name).string());
    INFO((config.ok() ? name : config.error().message));
    REQUIRE(config.ok());
    CHECK(config->run.name + ".toml" == name);
    const std::string written = to_toml(*config);
    const Result<RunConfig> back = parse_config(written, name);
    REQUIRE(back.ok());
    CHECK(to_toml(*back) == written);
  }
}

TEST_CASE("shipped: the head of every run says how long it takes", "[configs][shipped]") {
  for (const std::string& name : kShipped) {
    std::ifstream file(kFolder / name);
    std::string line;
    std::getline(file, line);
    INFO(name << ": " << line);
    const bool hours = line.starts_with("# Hours");
    CHECK((hours || line.starts_with("# Minutes") || line.starts_with("# Seconds")));
    // A file that takes hours and has no version of minutes says where it is tried.
    CHECK((!hours || name == "unlearn_neox.toml" || name.ends_with("_hours.toml")));
  }
}

TEST_CASE("shipped: a run of hours is that of minutes, longer", "[configs][shipped]") {
  for (const std::string name : {"dpo_smollm2", "smollm2_lora"}) {
    const auto longer = load_config((kFolder / (name + "_hours.toml")).string());
    auto shorter = load_config((kFolder / (name + ".toml")).string());
    REQUIRE((longer.ok() && shorter.ok()));
    CHECK(longer->run.steps * longer->batch.lanes > 10 * shorter->run.steps * shorter->batch.lanes);
    shorter->run = longer->run;
    shorter->batch = longer->batch;
    shorter->optimizer.lr = longer->optimizer.lr;
    shorter->schedule.warmup_steps = longer->schedule.warmup_steps;
    shorter->eval.interval_steps = longer->eval.interval_steps;
    shorter->checkpoint.interval_steps = longer->checkpoint.interval_steps;
    CHECK(to_toml(*shorter) == to_toml(*longer));
  }
}

TEST_CASE("shipped: the runs are what their names say", "[configs][shipped]") {
  const auto quickstart = load_config((kFolder / "quickstart.toml").string());
  REQUIRE(quickstart.ok());
  CHECK(quickstart->model.arch == "enoki");
  CHECK(quickstart->data.dir == "data/quickstart");
  const auto tiny = load_config((kFolder / "tiny_cpu.toml").string());
  REQUIRE(tiny.ok());
  CHECK(tiny->run.steps <= 100);
  const auto qwen3 = load_config((kFolder / "qwen3_tiny.toml").string());
  REQUIRE(qwen3.ok());
  CHECK(qwen3->model.arch == "qwen3");
}

TEST_CASE("shipped: the run on pairs prefers", "[configs][shipped]") {
  const auto dpo = load_config((kFolder / "dpo_smollm2.toml").string());
  REQUIRE(dpo.ok());
  CHECK(dpo->objective.name == "dpo");
  CHECK(dpo->objective.loss == "sigmoid");
  CHECK(dpo->objective.beta == 0.1);
  CHECK(dpo->objective.reference == "cache");
  CHECK(dpo->model.z_loss_coeff == 0.0);
}

TEST_CASE("shipped: the run that unlearns has two streams and six layers", "[configs][shipped]") {
  const auto unlearn = load_config((kFolder / "unlearn_neox.toml").string());
  REQUIRE(unlearn.ok());
  CHECK(unlearn->objective.name == "sequential_unlearning");
  CHECK(unlearn->data.forget_dir != unlearn->data.dir);
  CHECK(unlearn->run.steps == 6 * unlearn->objective.steps_per_layer);
  CHECK(unlearn->model.z_loss_coeff == 0.0);
}

TEST_CASE("shipped: the quickstart on two ranks differs in its name and its ranks alone",
          "[configs][shipped]") {
  const auto one = load_config((kFolder / "quickstart.toml").string());
  auto two = load_config((kFolder / "quickstart_2_ranks.toml").string());
  REQUIRE((one.ok() && two.ok()));
  CHECK(two->parallel.ranks == 2);
  CHECK(two->parallel.strategy == "full");
  two->run.name = one->run.name;
  two->parallel = one->parallel;
  CHECK(to_toml(*two) == to_toml(*one));
}

}  // namespace
}  // namespace train::configs::shipped_test
