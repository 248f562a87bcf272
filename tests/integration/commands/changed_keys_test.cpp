// Keys of a run file that change between two parts of a run: what decides the result is refused,
// all else is recorded.

#include "run/directory/config_record.hpp"
#include "tests/integration/event_log.hpp"
#include "tests/integration/sites/audit_runs.hpp"

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
                 {"runs/tiny/config.toml: lora.alpha was 16.0 so far and is 256.0 now",
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
  CHECK(last_of(changes_of(site)) == "step=20 key=run.log_interval_steps old=2 new=1");
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
                {"more than one configuration", "step=10 key=run.steps old=20 new=25",
                 "give --to 10, then --from 11"});
  check_same(site, replay({"--from", "8", "--to", "10"}), {"same bits: 10 steps"});
  check_same(site, replay({"--from", "11", "--to", "14"}), {"same bits: 4 steps"});
  fs::remove_all(site.run() / "checkpoints/step-00000010");
  check_mistake(site, replay({"--from", "11", "--to", "14"}),
                {"would begin from the initial weights", "no checkpoint of the steps between"});
}

TEST_CASE("changed keys: an accepted learning rate is that of the later steps, also to a replay",
          "[integration][resume][replay][verify][changed_keys]") {
  const RunSite site;
  const auto part = [&](const std::string& lr, int exit_code, const Words& more = {}) {
    const Ended ended = site.call(
        joined(RunSite::run_words(joined({"run.steps_per_job=5", "optimizer.lr=" + lr}, more)),
               {"--accept-config", "optimizer.lr"}));
    INFO(ended.err);
    REQUIRE(ended.exit_code == exit_code);
    return ended;
  };
  part("0.003", 75);
  const std::string change = "step=5 key=optimizer.lr old=0.003 new=0.01";
  CHECK(has(part("0.01", 75).err, "optimizer.lr was 0.003 and is 0.01 now: the steps from 6 on"));
  CHECK(indexed_changes_of(site) == Words{change});
  part("0.01", 75);  // The same once more is no change.
  part("0.002", 0);
  const Words changes = {change, "step=15 key=optimizer.lr old=0.01 new=0.002"};
  CHECK(changes_of(site) == changes);
  check_same(site, {"verify", "runs/tiny"}, {"consistent: ", changes[0] + "; " + changes[1]});
  const auto rate = [&](std::int64_t step) { return journal_of(site.run()).steps.at(step).lr; };
  CHECK(rate(6) > 2.0 * rate(5));
  CHECK(rate(16) < 0.5 * rate(15));
  const auto replay = [](const Words& more) { return joined({"replay", "runs/tiny"}, more); };
  check_same(site, replay({"--from", "1", "--to", "5"}), {"same bits: 5 steps"});
  check_same(site, replay({"--from", "6", "--to", "15"}), {"same bits: 10 steps", changes[0]});
  check_same(site, replay({"--from", "16", "--to", "20"}), {"same bits: 5 steps"});
  check_mistake(site, replay({"--from", "4", "--to", "7"}),
                {"more than one configuration (" + change + ")", "give --to 5, then --from 6"});
}

TEST_CASE("changed keys: lost steps that come otherwise leave no record to compare with",
          "[integration][resume][replay][verify][changed_keys]") {
  const RunSite site;
  site.train();
  fs::remove_all(site.run() / "checkpoints/step-00000020");
  const Ended again =
      site.call(joined(RunSite::run_words({"run.steps_per_job=3", "optimizer.lr=0.01"}),
                       {"--accept-config", "optimizer.lr"}));
  INFO(again.err);
  REQUIRE(again.exit_code == 75);
  CHECK(journal_of(site.run()).steps.rbegin()->first == 13);
  check_same(site, {"replay", "runs/tiny", "--from", "11"}, {"same bits: 3 steps"});
  check_same(site, {"verify", "runs/tiny"}, {"consistent: "});
}

TEST_CASE("changed keys: what never changes within a run is refused with its reason",
          "[integration][resume][changed_keys]") {
  const RunSite site;
  train_half(site);
  const auto before = tree_of(site.run());
  const auto accept = [&](const std::string& key, const Words& set) {
    return site.call(joined(RunSite::run_words(set), {"--accept-config", key}));
  };
  check_one_line(accept("model.layers", {"model.layers=3"}), 2,
                 {"--accept-config model.layers: never changes within a run", "shapes"});
  check_one_line(accept("optimizer.eps", {"optimizer.lr=0.5"}), 2,
                 {"optimizer.lr was 0.003", "--accept-config optimizer.lr"});
  CHECK(tree_of(site.run()) == before);
}

TEST_CASE("changed keys: an edited config.toml is noticed, and the run goes by its own record",
          "[integration][resume][replay][verify][changed_keys]") {
  const RunSite site;
  train_half(site);
  const std::string stored = read_bytes(site.run() / "config.toml");
  std::string edited = stored;
  edited.replace(edited.find("lr = 0.003"), 10, "lr = 0.5  ");
  write_bytes(site.run() / "config.toml", edited);
  const Ended verified = site.call({"verify", "runs/tiny"});
  CHECK(verified.exit_code == 1);
  CHECK(has(verified.out,
            "problem: config.toml: was edited after the run wrote it: optimizer.lr "
            "is 0.5 there, 0.003 in the record"));
  check_same(site, {"replay", "runs/tiny", "--to", "9"}, {"same bits: 9 steps"});
  // Neither the edited file nor a run file that agrees with it changes the learning rate.
  check_one_line(site.call({"run", "runs/tiny/config.toml"}), 2,
                 {"optimizer.lr was 0.003 so far and is 0.5 now"});
  check_one_line(site.call(RunSite::run_words({"optimizer.lr=0.5"})), 2,
                 {"optimizer.lr was 0.003"});
  write_bytes(site.run() / "config.toml", "# a word\n" + stored);
  check_same(site, {"verify", "runs/tiny"}, {"consistent: "});  // No value is another one.
  site.train();
  CHECK(has(read_bytes(site.run() / "config.toml"), "lr = 0.003\n"));
  CHECK_FALSE(has(read_bytes(site.run() / "config.toml"), "# a word"));
}

TEST_CASE("changed keys: a start killed between the record and config.toml is consistent",
          "[integration][resume][verify][changed_keys]") {
  const RunSite site;
  train_half(site);
  const std::string before = read_bytes(site.run() / "config.toml");
  {
    std::string text = before;
    text.replace(text.find("lr = 0.003"), 10, "lr = 0.5  ");
    namespace index = train::checkpoint;
    train::storage::WriteBatch batch;
    batch.put(index::index_keys::of(index::index_keys::kEvent, 500),
              index::event_text({1, train::run::kConfigRecorded,
                                 train::run::config_record_text({.step = 10, .text = text})}));
    REQUIRE(open_store(site.run())->write(batch, train::storage::Durability::synced).ok());
  }
  check_same(site, {"verify", "runs/tiny"}, {"consistent: "});
  const Ended resumed = site.call(
      joined(RunSite::run_words({"optimizer.lr=0.5"}), {"--accept-config", "optimizer.lr"}));
  INFO(resumed.err);
  REQUIRE(resumed.exit_code == 0);
  CHECK(has(read_bytes(site.run() / "config.toml"), "lr = 0.5\n"));
  check_same(site, {"replay", "runs/tiny", "--from", "11"}, {"same bits: 10 steps"});
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
