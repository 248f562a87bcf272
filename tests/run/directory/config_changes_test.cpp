// What is said of keys that have other values than at the start before.

#include "run/directory/config_changes.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "engine/optimizer/lr_schedule.hpp"
#include "run/directory/config_record.hpp"

namespace train::run {
namespace {

configs::KeyChange change_of(const std::string& path, const std::string& before,
                             const std::string& now) {
  return {.path = path, .before = before, .now = now, .field = configs::find_field(path)};
}

/// A cosine from 5e-6 over 5e-4 to 5e-6, of so many steps.
configs::RunConfig cosine(std::int64_t steps) {
  configs::RunConfig config;
  config.run.steps = steps;
  config.optimizer.lr = 5e-4;
  config.schedule.warmup_steps = 4;
  return config;
}

std::string of_steps(std::int64_t before, std::int64_t now, std::int64_t done) {
  return change_warning(change_of("run.steps", fmt::format("{}", before), fmt::format("{}", now)),
                        cosine(now), done);
}

const std::string kAdvice =
    "; a run that is to be prolonged takes schedule.name = \"wsd\" or \"constant\", whose rate "
    "depends on its length at the end or not at all, instead of \"cos\"";

std::string rate(std::int64_t step, std::int64_t steps) {
  const configs::RunConfig config = cosine(steps);
  return fmt::format("{:.6g}",
                     engine::learning_rate(config.schedule, config.optimizer.lr, step - 1, steps));
}

}  // namespace

TEST_CASE("config changes: another length names the next step's rate by both",
          "[run][config_changes]") {
  CHECK(of_steps(20, 40, 10) ==
        "run.steps was 20 and is 40 now: the learning-rate schedule follows the new length from "
        "here on; the learning rate of step 11 is " +
            rate(11, 20) + " by the old length, " + rate(11, 40) + " by the new" + kAdvice);
  CHECK(rate(11, 20) != rate(11, 40));
}

TEST_CASE("config changes: a run that was over goes on from its last rate",
          "[run][config_changes]") {
  REQUIRE(rate(20, 20) == "5e-06");
  CHECK_THAT(of_steps(20, 40, 20),
             Catch::EndsWith("the learning rate goes from 5e-06 of step 20, the last of the old "
                             "length, to " +
                             rate(21, 40) + " of step 21" + kAdvice));
}

TEST_CASE("config changes: schedules that need not know the length are not advised again",
          "[run][config_changes]") {
  configs::RunConfig config = cosine(40);
  const auto change = change_of("run.steps", "20", "40");
  config.schedule.name = std::string("constant");
  CHECK_THAT(change_warning(change, config, 10), !Catch::Contains("prolonged"));
  config.schedule.name = std::string("wsd");
  CHECK_THAT(change_warning(change, config, 10), !Catch::Contains("prolonged"));
}

TEST_CASE("config changes: an accepted change, and one that follows the length, are warned of",
          "[run][config_changes]") {
  CHECK(change_warning(change_of("optimizer.lr", "0.1", "0.2"), cosine(20), 10) ==
        "optimizer.lr was 0.1 and is 0.2 now: the steps from 11 on use the new value");
  auto warmup = change_of("schedule.warmup_steps", "80", "2");
  warmup.follows_length = true;
  CHECK(change_warning(warmup, cosine(20), 10) ==
        "schedule.warmup_steps was 80 and is 2 now, as run.steps has changed: the steps from 11 on "
        "use the new value");
}

TEST_CASE("config changes: a step has the newest configuration recorded before it",
          "[run][config_changes]") {
  const std::vector<ConfigRecord> records = {
      {.step = 0, .text = "a"},
      {.step = 10, .text = "b"},
      {.step = 15, .text = "c"},
      {.step = 10, .text = "d"}};  // The last start went back to step 10.
  CHECK(record_of(records, 10)->text == "a");
  CHECK(record_of(records, 11)->text == "d");
  CHECK(record_of(records, 16)->text == "d");
  CHECK(record_of(records, 0) == nullptr);
  CHECK(config_record_text({.step = 3, .text = "[run]\nname = \"a\"\n"}) ==
        "step=3 [run]\tname = \"a\"\t");
  CHECK(changed_field("step=20 key=data.parts[1].weight old=1 new=2") == nullptr);
  CHECK(changed_field("step=20 key=optimizer.lr old=1 new=2")->key() == "optimizer.lr");
}

TEST_CASE("config changes: a shorter run says the same, or that no step is left",
          "[run][config_changes]") {
  CHECK_THAT(of_steps(40, 20, 10),
             Catch::EndsWith("the learning rate of step 11 is " + rate(11, 40) +
                             " by the old length, " + rate(11, 20) + " by the new"));
  CHECK_THAT(of_steps(40, 20, 20), Catch::EndsWith("20 steps are done, so none is left"));
  CHECK_THAT(of_steps(40, 20, 30), Catch::EndsWith("30 steps are done, so none is left"));
}

TEST_CASE("config changes: an average that follows the length is named", "[run][config_changes]") {
  configs::RunConfig config = cosine(40);
  const auto change = change_of("run.steps", "20", "40");
  config.optimizer.name = "ademamix";
  CHECK_THAT(change_warning(change, config, 10), Catch::Contains("optimizer.beta3"));
  config.optimizer.beta3 = 0.5;
  config.optimizer.alpha = 2.0;
  CHECK_THAT(change_warning(change, config, 10), !Catch::Contains("optimizer.beta3"));
}

TEST_CASE("config changes: another number of ranks is warned of where bits depend on it",
          "[run][config_changes][P1]") {
  configs::RunConfig config = cosine(20);
  const auto ranks = change_of("parallel.ranks", "2", "3");
  CHECK(change_warning(ranks, config, 10).empty());
  config.precision.reduce = std::string("bf16");
  CHECK_THAT(change_warning(ranks, config, 10),
             Catch::Contains("parallel.ranks was 2 and is 3 now") &&
                 Catch::Contains("the bits of the steps from 11 on depend on it"));
  CHECK(change_warning(change_of("runtime.threads", "1", "2"), config, 10).empty());
}

TEST_CASE("config changes: an event's text says step, key and both values",
          "[run][config_changes]") {
  const std::string text = change_text(change_of("run.dir", "\"a b\"", ""), 20);
  CHECK(text == "step=20 key=run.dir old=\"a b\" new=not set");
  CHECK(change_step(text) == 20);
  for (const char* other : {"", "step=", "step=20", "step=x key=a", "20 key=a", "step= 2 key=a"}) {
    INFO(other);
    CHECK_FALSE(change_step(other).has_value());
  }
}

}  // namespace train::run
