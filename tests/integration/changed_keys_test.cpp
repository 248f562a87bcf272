// Keys of a run file that change between two parts of a run: what decides the result is refused,
// all else is recorded.

#include "tests/integration/audit_runs.hpp"
#include "tests/integration/event_log.hpp"

using namespace train::test;

namespace {

/// A run of 20 steps that stopped at 10.
void train_half(const RunSite& site, const Words& keys = {}) {
  const Ended ended = site.call(RunSite::run_words(joined({"run.steps_per_job=10"}, keys)));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 75);
  REQUIRE(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10});
}

/// Texts of what changed, by events.jsonl.
Words changes_of(const RunSite& site) {
  Words texts;
  for (const auto& event : events_of(site.run(), "config_changed")) {
    texts.push_back(event.at("text").get<std::string>());
  }
  return texts;
}

/// The same by the index.
Words indexed_changes_of(const RunSite& site) {
  const auto events = train::checkpoint::read_events(*open_store(site.run()));
  REQUIRE(events.ok());
  Words texts;
  for (const auto& event : *events) {
    if (event.kind == "config_changed") {
      texts.push_back(event.text);
    }
  }
  return texts;
}

}  // namespace

TEST_CASE("changed keys: what decides the result is refused, and nothing is touched",
          "[integration][resume][changed_keys]") {
  const RunSite site;
  train_half(site, {"lora.rank=2"});
  const auto before = tree_of(site.run());
  check_one_line(site.call(RunSite::run_words({"lora.rank=2", "lora.alpha=256"})), 2,
                 {"runs/tiny/config.toml: lora.alpha was 16.0 when this run began and is 256.0 now",
                  "set it back", "run.name", "--fresh"});
  CHECK(tree_of(site.run()) == before);
}

TEST_CASE("changed keys: what decides nothing is recorded, and verify and replay name it",
          "[integration][resume][replay][verify][changed_keys]") {
  const RunSite site;
  train_half(site);
  CHECK(changes_of(site).empty());
  const Words keys = {"run.log_interval_steps=2", "runtime.threads=2"};
  const Words wanted = {"step=10 key=run.steps_per_job old=10 new=0",
                        "step=10 key=run.log_interval_steps old=1 new=2",
                        "step=10 key=runtime.threads old=1 new=2"};
  const Ended ended = site.train(keys);
  for (const std::string& text : wanted) {
    CHECK(has(ended.err, "config_changed " + text + "\n"));
  }
  CHECK(changes_of(site) == wanted);
  CHECK(indexed_changes_of(site) == wanted);
  CHECK(has(read_bytes(site.run() / "config.toml"), "log_interval_steps = 2"));
  check_same(site, {"verify", "runs/tiny"},
             {"consistent: ", "changed between starts: " + wanted[0] + "; " + wanted[1]});
  check_same(site, {"replay", "runs/tiny", "--from", "11"},
             {"same bits: 10 steps", "changed between starts: " + wanted[0]});
  check_same(site, {"replay", "runs/tiny", "--to", "9"}, {"same bits: 9 steps"});
  CHECK_FALSE(has(site.call({"replay", "runs/tiny", "--to", "9"}).out, "changed"));

  site.train(keys);  // the same once more
  CHECK(changes_of(site) == wanted);
  site.train({"runtime.threads=2"});  // nothing is left to do, and yet it is another file
  CHECK(changes_of(site).back() == "step=20 key=run.log_interval_steps old=2 new=1");
  CHECK(changes_of(site) == indexed_changes_of(site));
}

TEST_CASE("changed keys: a longer run says how the learning rate jumps",
          "[integration][resume][changed_keys]") {
  const RunSite site;
  site.train();
  const Ended more = site.train({"run.steps=25"});
  const Words lines = lines_of(more.err);
  const auto warning = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return has(line, "run.steps was 20 and is 25 now");
  });
  REQUIRE(warning != lines.end());
  const auto steps = journal_of(site.run()).steps;
  CHECK(has(*warning, fmt::format("goes from {:.6g} of step 20, the last of the old length, to "
                                  "{:.6g} of step 21",
                                  steps.at(20).lr, steps.at(21).lr)));
  CHECK(changes_of(site) == Words{"step=20 key=run.steps old=20 new=25"});
}

TEST_CASE("changed keys: steps of two lengths are replayed one after the other",
          "[integration][resume][replay][changed_keys]") {
  const RunSite site;
  train_half(site);
  site.train({"run.steps=25"});
  const auto replay = [](const Words& more) { return joined({"replay", "runs/tiny"}, more); };
  check_mistake(site, replay({"--from", "8", "--to", "14"}),
                {"more than one learning-rate schedule", "step=10 key=run.steps old=20 new=25",
                 "give --to 10, then --from 11"});
  check_same(site, replay({"--from", "8", "--to", "10"}), {"same bits: 10 steps"});
  check_same(site, replay({"--from", "11", "--to", "14"}), {"same bits: 4 steps"});
  fs::remove_all(site.run() / "checkpoints/step-00000010");
  check_mistake(site, replay({"--from", "11", "--to", "14"}),
                {"would begin from the initial weights", "no checkpoint of the steps between"});
}

TEST_CASE("changed keys: a start that is refused for its data has changed nothing",
          "[integration][resume][data][changed_keys]") {
  const RunSite site;
  train_half(site);
  const RunSite other;
  write_bytes(other / "text.txt", simple_text(1400));
  const Ended prepared = other.call({"data", "prepare", "--input", "text.txt", "--out", "data"});
  INFO(prepared.err);
  REQUIRE(prepared.exit_code == 0);
  const auto before = read_bytes(site.run() / "config.toml");
  const Ended refused =
      site.call(RunSite::run_words({"data.dir=" + (other / "data").string(), "eval.lanes=1"}));
  check_one_line(refused, 2, {"--accept-data"});
  CHECK(read_bytes(site.run() / "config.toml") == before);
  CHECK(changes_of(site).empty());
  CHECK(indexed_changes_of(site).empty());
}
