// `actortrain merge` with the real program.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "engine/state_view.hpp"
#include "tests/integration/sites/rank_runs.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

using namespace train;
using namespace train::test;

namespace {

using Floats = std::vector<float>;

/// Every tensor of an exported model.
std::map<std::string, Floats> tensors_in(const fs::path& directory) {
  const auto file = storage::SafetensorsFile::open(directory / "model.safetensors");
  REQUIRE(file);
  std::map<std::string, Floats> tensors;
  for (const storage::TensorEntry& entry : file->entries()) {
    tensors[entry.name] = stored_floats(directory / "model.safetensors", entry.name);
  }
  return tensors;
}

}  // namespace

TEST_CASE("merge: the last checkpoints of a run become their mean", "[integration][merge]") {
  const RunSite site;
  site.train(rank_keys(
      2, "full",
      {"run.name=one", "run.steps=6", "checkpoint.interval_steps=2", "checkpoint.keep_last=3"}));
  const auto done = [&](Words words) {
    const Ended ended = site.call(std::move(words));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
  };
  done({"merge", "runs/one", "--last", "2", "--out", "mean"});
  std::vector<std::string> steps;  // Of checkpoints, whose number follows from the disk's pace.
  for (const auto& entry : fs::directory_iterator(site.run("one") / "checkpoints")) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) {
      steps.push_back(std::to_string(std::stoll(name.substr(5))));
    }
  }
  std::ranges::sort(steps);  // Of one digit each.
  REQUIRE(steps.size() >= 2);
  done({"export", "runs/one", "--step", steps.end()[-1], "--out", "last"});
  done({"export", "runs/one", "--step", steps.end()[-2], "--out", "before"});
  const auto mean = tensors_in(site / "mean");
  const auto last = tensors_in(site / "last");
  const auto before = tensors_in(site / "before");
  REQUIRE(mean.size() == last.size());
  for (const auto& [name, values] : mean) {
    INFO(name);
    REQUIRE(last.at(name).size() == values.size());
    Floats wanted;
    for (std::size_t i = 0; i < values.size(); ++i) {
      wanted.push_back(static_cast<float>(0.5 * static_cast<double>(last.at(name)[i]) +
                                          0.5 * static_cast<double>(before.at(name)[i])));
    }
    CHECK(values == wanted);
  }

  check_mistake(site, {"merge", "runs/one", "--last", "9", "--out", "x"},
                {"checkpoints, and --last wants 9", "checkpoint.keep_last"});
  check_mistake(site, {"merge", "runs/one", "--out", "x"}, {"two models or more, or --last N"});
  check_mistake(site, {"merge", "runs/one", "runs/one", "--out", "x"},
                {"runs/one is a run", "--last N"});
  check_mistake(site, {"merge", "runs/one", "--last", "2", "--weights", "1,0", "--out", "x"},
                {"--weights must be positive numbers"});
  check_mistake(site, {"merge", "runs/one", "--last", "2", "--weights", "1", "--out", "x"},
                {"--weights has 1 numbers for 2 models"});
  check_mistake(site,
                {"merge", "runs/one", "--last", "2", "--weights", "1e308,1e308", "--out", "x"},
                {"--weights are too large"});
  CHECK_FALSE(fs::exists(site / "x"));
  INFO("a damaged weight is found while it is summed");
  const fs::path shard = site.run("one") / "checkpoints" /
                         fmt::format("step-{:08}", std::stoll(steps.back())) /
                         "shard-00000-of-00002.safetensors";
  const auto file = storage::SafetensorsFile::open(shard);
  REQUIRE(file);
  const auto weight = std::ranges::find_if(file->entries(), [](const storage::TensorEntry& entry) {
    return engine::is_weight(entry.name);
  });
  REQUIRE(weight != file->entries().end());
  flip_byte(shard, file->data_start() + weight->begin);
  const Ended damaged = site.call({"merge", "runs/one", "--last", "2", "--out", "x"});
  CHECK(damaged.exit_code == 1);
  CHECK(has(damaged.err, "does not match its digest"));
  CHECK(has(damaged.err, weight->name));
  CHECK_FALSE(fs::exists(site / "x"));
}
