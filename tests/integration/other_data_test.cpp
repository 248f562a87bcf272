// Data that is not what a run was trained on, and ranks that do not see the same.

#include "tests/integration/sites/audit_runs.hpp"
#include "tests/integration/sites/node_runs.hpp"

using namespace train::test;

namespace {

/// Prepares data/ of the site from a text, in place of what it held.
void prepare(const RunSite& site, const std::string& text) {
  write_bytes(site / "text.txt", text);
  const Ended ended = site.call({"data", "prepare", "--input", (site / "text.txt").string(),
                                 "--out", (site / "data").string(), "--force"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
}

const Words kFirstPart = {"run.steps_per_job=10"};

/// A run of 20 steps that stopped at 10; then its data is prepared anew from another text.
void train_half(const RunSite& site) {
  prepare(site, simple_text(1500));
  site.write_config("data");
  const Ended ended = site.call(RunSite::run_words(kFirstPart));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 75);
  REQUIRE(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10});
}

std::string fingerprint_at(const RunSite& site, std::int64_t step) {
  return manifest_of(site.run(), step).fields.data_fingerprint;
}

/// Texts of the events of a kind.
Words event_texts(const RunSite& site, const std::string& kind) {
  const auto store = open_store(site.run());
  const auto events = train::checkpoint::read_events(*store);
  REQUIRE(events.ok());
  Words texts;
  for (const auto& event : *events) {
    if (event.kind == kind) {
      texts.push_back(event.text);
    }
  }
  return texts;
}

/// The checkpoint of `step` as an earlier version would have written it.
void forget_fingerprint(const RunSite& site, std::int64_t step) {
  auto manifest = manifest_of(site.run(), step);
  manifest.fields.data_fingerprint.clear();
  const fs::path directory = site.run() / "checkpoints" / train::checkpoint::checkpoint_name(step);
  write_bytes(directory / "manifest.json", train::checkpoint::manifest_text(manifest));
  fs::remove_all(site.run() / "index");  // made anew from the manifests
}

}  // namespace

TEST_CASE("other data: a run is not resumed on it, unless that is accepted",
          "[integration][data][resume]") {
  const RunSite site;
  train_half(site);
  const std::string before = fingerprint_at(site, 10);
  const std::string config = read_bytes(site.run() / "config.toml");
  prepare(site, simple_text(1499) + "the end");
  const Ended refused = site.call(RunSite::run_words({"eval.lanes=1"}));
  check_one_line(
      refused, 2,
      {"checkpoints/step-00000010", before, "data.dir data holds", "--fresh", "--accept-data"});
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10});
  CHECK(read_bytes(site.run() / "config.toml") == config);
  CHECK(event_texts(site, "data_accepted").empty());

  Words accepting = RunSite::run_words({});
  accepting.emplace_back("--accept-data");
  const Ended accepted = site.call(accepting);
  INFO(accepted.err);
  REQUIRE(accepted.exit_code == 0);
  CHECK(has(accepted.err, "resumed step=10"));
  CHECK(has(accepted.err, "data_accepted "));
  CHECK(fingerprint_at(site, 10) == before);
  const std::string after = fingerprint_at(site, 20);
  CHECK(after != before);
  CHECK(has(refused.err, after));
  const Words events = event_texts(site, "data_accepted");
  REQUIRE(events.size() == 1);
  CHECK(has(events.front(), before));
  CHECK(has(events.front(), after));

  // From here on this is the run's data.
  CHECK(site.train({"run.steps=22"}).err.find("data_accepted") == std::string::npos);
  CHECK(fingerprint_at(site, 22) == after);
}

TEST_CASE("other data: the same text prepared again, or moved, is the same data",
          "[integration][data][resume]") {
  const RunSite site;
  train_half(site);
  prepare(site, simple_text(1500));
  fs::rename(site / "data", site / "moved");
  site.train({"data.dir=moved"});
  CHECK(fingerprint_at(site, 20) == fingerprint_at(site, 10));
}

TEST_CASE("other data: a checkpoint of an earlier version does not say, and goes on",
          "[integration][data][resume]") {
  const RunSite site;
  train_half(site);
  forget_fingerprint(site, 10);
  prepare(site, simple_text(1400));
  const Ended ended = site.train();
  CHECK(has(ended.err, "resumed step=10"));
  CHECK(has(ended.err, "data_not_compared "));
  CHECK_FALSE(fingerprint_at(site, 20).empty());
}

TEST_CASE("other data: a run that has nothing to do needs none", "[integration][data][resume]") {
  const RunSite site;
  prepare(site, simple_text(1500));
  site.write_config("data");
  site.train();
  prepare(site, simple_text(1400));
  CHECK(has(site.train().err, "nothing to do"));
}

TEST_CASE("other data: replay refuses it, eval warns", "[integration][data][replay][eval]") {
  const RunSite site;
  prepare(site, simple_text(1500));
  site.write_config("data");
  site.train();
  const std::string before = fingerprint_at(site, 20);
  const Words replay = {"replay", "runs/tiny", "--to", "12"};
  check_same(site, replay, {"same bits"});
  prepare(site, simple_text(1400));
  check_mistake(site, replay, {"checkpoints/step-00000020", before, "data.dir data holds"});
  check_mistake(site, {"replay", "runs/tiny", "--to", "3"}, {"checkpoints/step-00000010", before});
  const Ended evaluated = site.call({"eval", "runs/tiny"});
  INFO(evaluated.err);
  CHECK(evaluated.exit_code == 0);
  CHECK(has(evaluated.err, "other_data "));
  CHECK(has(evaluated.err, before));
  CHECK(has(evaluated.out, "eval step=20"));
}

TEST_CASE("other data: what was accepted is what its steps are replayed on",
          "[integration][data][replay]") {
  const RunSite site;
  train_half(site);
  prepare(site, simple_text(1400));
  REQUIRE(site.call({"run", "tiny.toml", "--accept-data"}).exit_code == 0);
  check_same(site, {"replay", "runs/tiny", "--from", "11"}, {"same bits: 10 steps"});
  check_mistake(site, {"replay", "runs/tiny", "--to", "9"}, {"checkpoints/step-00000010"});
}

TEST_CASE("other data: a node that sees other data is refused by its ranks' numbers",
          "[integration][data][nodes]") {
  const RunSite site;
  const RunSite elsewhere;  // the other node's own disk, but for the run's directory
  for (const RunSite* each : {&site, &elsewhere}) {
    each->write_config("data");
  }
  prepare(site, simple_text(1500));
  prepare(elsewhere, simple_text(1501));
  const Words keys = {"run.dir=" + (site.path() / "runs").string(), "run.steps=2",
                      "schedule.warmup_steps=0"};
  const NodeShape shape = {.nodes = 2, .ranks = 2};
  const auto other = start_node(elsewhere, 1, 90, keys, "full", shape);
  const auto head = start_node(site, 0, 90, keys, "full", shape);
  const Ended ended = head->wait();
  const Ended other_ended = other->wait();
  INFO("other: " << other_ended.err);
  INFO("head: " << ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(other_ended.exit_code == 2);
  CHECK(has(ended.err, "rank 1 sees other data in data.dir (xxh3-128:"));
  CHECK(checkpoint_steps(site.run()).empty());
}
