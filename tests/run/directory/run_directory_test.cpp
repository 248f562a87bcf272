#include "run/directory/run_directory.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/index/index.hpp"
#include "configs/load_config.hpp"
#include "storage/rocks_store.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/log_lines.hpp"

namespace train::run {
namespace {

/// A run below `directory` whose file has a warm-up of 80 steps.
configs::RunConfig with_warmup(const std::filesystem::path& directory, const std::string& steps) {
  const std::vector<std::string> set = {"run.dir=" + directory.string(), "run.steps=" + steps};
  const auto config = configs::parse_config(
      "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n"
      "[schedule]\nwarmup_steps = 80\n",
      "x.toml", set);
  REQUIRE(config.ok());
  return *config;
}

}  // namespace

TEST_CASE("run directory: a run whose warm-up was cut is resumed by the same command",
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto open = [&](const std::string& steps) {
    return open_run_directory(with_warmup(directory.path(), steps), /*fresh=*/false);
  };
  REQUIRE(open("50").ok());
  const auto again = open("50");
  REQUIRE(again.ok());
  CHECK(again->existed);
}

TEST_CASE("run directory: a warm-up that follows the length is no change of its own",
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto open = [&](const std::string& steps) {
    return open_run_directory(with_warmup(directory.path(), steps), /*fresh=*/false);
  };
  {
    const auto begun = open("50");
    REQUIRE(begun.ok());
    // A step of it was finished: else it would be begun anew.
    std::ofstream(begun->root / "metrics.jsonl") << "{\"step\": 1, \"loss\": 2.5}\n";
  }
  const auto longer = open("1600");  // The file says 80 both times; 5 was its tenth of 50 steps.
  REQUIRE(longer.ok());
  REQUIRE(longer->changes.size() == 2);
  CHECK(longer->changes[1].path == "schedule.warmup_steps");
  CHECK(longer->changes[1].follows_length);
}

TEST_CASE("run directory: --fresh sets the earlier run aside, whose name it then has",
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto config = with_warmup(directory.path(), "100");
  for (int run = 1; run <= 3; ++run) {
    const auto begun = open_run_directory(config, /*fresh=*/true);
    REQUIRE(begun.ok());
    CHECK(begun->root == directory.path() / "a");
    CHECK_FALSE(begun->existed);
    CHECK(begun->set_aside ==
          (run == 1 ? std::filesystem::path() : directory.path() / fmt::format("a-{}", run)));
    std::ofstream(begun->root / "mark") << run;
  }
  for (int run = 1; run <= 2; ++run) {
    const auto aside = directory.path() / fmt::format("a-{}", run + 1);
    std::ifstream mark(aside / "mark");
    int found = 0;
    mark >> found;
    CHECK(found == run);
    CHECK(configs::load_config((aside / "config.toml").string())->run.name ==
          aside.filename().string());
  }
  const auto used = open_run_directory(config, /*fresh=*/false);
  REQUIRE(used.ok());
  const auto refused = open_run_directory(config, /*fresh=*/true);  // Of a run that is in use.
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().exit_code() == 2);
}

namespace {

/// A run with `before` that has finished a step is opened with `now`.
Result<RunDirectory> open_changed(const std::filesystem::path& directory,
                                  const std::vector<std::string>& before,
                                  const std::vector<std::string>& now,
                                  const std::vector<std::string>& accepted = {}) {
  const auto config_of = [&directory](std::vector<std::string> set) {
    set.push_back("run.dir=" + directory.string());
    const auto config = configs::parse_config(
        "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n", "x.toml", set);
    REQUIRE(config.ok());
    return *config;
  };
  {
    const auto begun = open_run_directory(config_of(before), /*fresh=*/false);
    REQUIRE(begun.ok());
    CHECK(begun->changes.empty());
    std::ofstream(begun->root / "metrics.jsonl") << "{\"step\": 1, \"loss\": 2.5}\n";
  }
  return open_run_directory(config_of(now), /*fresh=*/false, accepted);
}

}  // namespace

TEST_CASE("run directory: a key that decides the result is named with both values and the way out",
          "[run][run_directory]") {
  struct Change {
    std::vector<std::string> before, now;
    std::string said;
  };
  const std::vector<Change> changes = {
      {{"objective.name=dpo"},
       {"objective.name=simpo"},
       "objective.name was \"dpo\" so far and is \"simpo\" now"},
      {{"objective.name=sft"},
       {"objective.name=sft", "objective.label_smoothing=0.5"},
       "objective.label_smoothing was 0.0 so far and is 0.5 now"},
      {{"lora.rank=4"},
       {"lora.rank=4", "lora.alpha=256"},
       "lora.alpha was 16.0 so far "
       "and is 256.0 now"},
      {{},
       {"train.freeze=head", "run.steps=7"},
       "train.freeze was [] so far and is "
       "[\"head\"] now"},
  };
  for (const Change& change : changes) {
    const test::TempDirectory directory;
    const auto opened = open_changed(directory.path(), change.before, change.now);
    REQUIRE_FALSE(opened.ok());
    CHECK(opened.error().exit_code() == 2);
    const std::string& text = opened.error().message;
    const std::string begin =
        (directory.path() / "a" / "config.toml").string() + ": " + change.said;
    INFO(text);
    REQUIRE(text.starts_with(begin));
    const std::string rest = text.substr(begin.size());
    CHECK((rest.starts_with("; set it back, ") || rest.starts_with(" (changed, too: objective.")));
    CHECK(text.ends_with("choose another run.name, or start anew with --fresh"));
  }
}

TEST_CASE("run directory: a value that follows from another key is named together with that",
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto opened =
      open_changed(directory.path(), {},
                   {"model.experts=8", "model.experts_per_token=2", "model.expert_hidden=64"});
  REQUIRE_FALSE(opened.ok());
  INFO(opened.error().message);
  CHECK_THAT(opened.error().message,
             Catch::Contains(": model.experts was 0 so far and is 8 now (changed, too: "
                             "model.expert_hidden)") &&
                 Catch::EndsWith("; set it back, choose another run.name, or start anew with "
                                 "--fresh"));
}

TEST_CASE("run directory: a key that later updates alone depend on changes if it is accepted",
          "[run][run_directory]") {
  const std::vector<std::string> now = {"optimizer.lr=0.5"};
  {
    const test::TempDirectory directory;
    const auto refused = open_changed(directory.path(), {}, now, {"optimizer.eps"});
    REQUIRE_FALSE(refused.ok());
    CHECK_THAT(refused.error().message,
               Catch::EndsWith("optimizer.lr was 0.001 so far and is 0.5 now; set it "
                               "back, train on with it by --accept-config optimizer.lr, choose "
                               "another run.name, or start anew with --fresh"));
  }
  const test::TempDirectory directory;
  const auto opened = open_changed(directory.path(), {}, now, {"optimizer.lr"});
  REQUIRE(opened.ok());
  REQUIRE(opened->changes.size() == 1);
  CHECK(opened->changes[0].path == "optimizer.lr");
}

TEST_CASE("run directory: keys that may change are listed", "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto opened = open_changed(directory.path(), {}, {"run.steps=7", "parallel.ranks=2"});
  REQUIRE(opened.ok());
  REQUIRE(opened->changes.size() == 2);
  CHECK(opened->changes[0].path == "run.steps");
  CHECK(opened->changes[0].before == "1000");
  CHECK(opened->changes[1].path == "parallel.ranks");
  CHECK(opened->changes[1].now == "2");
}

namespace {

/// The index of a run, as the run itself writes it, of these events and steps.
void write_index(const RunDirectory& run, const std::vector<checkpoint::EventRecord>& events,
                 const std::vector<checkpoint::StepRecord>& steps = {}) {
  auto store = storage::RocksStore::open(run.index());
  REQUIRE(store.ok());
  auto index = checkpoint::CheckpointIndex::open(**store, run.checkpoints());
  REQUIRE(index.ok());
  for (const checkpoint::EventRecord& event : events) {
    REQUIRE(index->log_event(event.kind, event.text).ok());
  }
  REQUIRE(index->log_steps(steps).ok());
}

std::string refusal(const Result<RunDirectory>& opened) {
  REQUIRE_FALSE(opened.ok());
  CHECK(opened.error().exit_code() == 2);
  return opened.error().message;
}

}  // namespace

TEST_CASE("run directory: a directory of something else is refused and left as it is",
          "[run][run_directory]") {
  const test::TempDirectory directory;
  const auto open = [&] {
    return open_run_directory(with_warmup(directory.path(), "100"), /*fresh=*/false);
  };
  const std::filesystem::path root = directory / "a";
  test::write_bytes(root, "a file");
  CHECK_THAT(refusal(open()), Catch::Contains("is a file, not a run directory"));
  std::filesystem::remove(root);
  std::filesystem::create_directory(root);
  test::write_bytes(root / "notes.txt", "of somebody");
  CHECK_THAT(refusal(open()), Catch::Contains("holds files but no run (no config.toml)"));
  CHECK(test::names_in(root) == std::vector<std::string>{"notes.txt"});
  test::write_bytes(root / "run.lock", "");  // What a start leaves that ended at once.
  CHECK_THAT(refusal(open()), Catch::Contains("holds files but no run (no config.toml)"));
  CHECK(test::read_bytes(root / "notes.txt") == "of somebody");
}

TEST_CASE("run directory: a job's output and what a killed start left are no other's files",
          "[run][run_directory][P3]") {
  const test::TempDirectory directory;
  const std::filesystem::path root = directory / "a";
  std::filesystem::create_directory(root);
  test::write_bytes(root / "slurm-7.out", "job 7");
  for (const char* const left :
       {".config.toml.tmp-1", ".metrics.jsonl.tmp-2", ".run.lock.host-3"}) {
    test::write_bytes(root / left, "half");
  }
  const auto opened = open_run_directory(with_warmup(directory.path(), "100"), /*fresh=*/false);
  REQUIRE(opened.ok());
  CHECK_FALSE(opened->existed);
  CHECK(test::names_in(root) == std::vector<std::string>{"config.toml", "run.lock", "slurm-7.out"});
}

TEST_CASE("run directory: a run that cannot be resumed is begun anew only before its first step",
          "[run][run_directory][P3]") {
  const test::TempDirectory directory;
  const auto open = [&] {
    return open_run_directory(with_warmup(directory.path(), "100"), /*fresh=*/false);
  };
  {
    const auto begun = open();
    REQUIRE(begun.ok());
    write_index(*begun, {{.kind = "started", .text = ""}});
    test::write_bytes(begun->config_file(), "no TOML");
  }
  {
    const test::LogLines lines;
    const auto anew = open();
    REQUIRE(anew.ok());
    CHECK(anew->existed);
    CHECK(lines.count("run_begun_anew directory=" + anew->root.string()) == 1);
    CHECK(newest_step_in_metrics(anew->root) == 0);
    write_index(*anew, {}, {{.step = 1, .loss = 2.5}});  // The journal alone knows of a step.
  }
  CHECK_THAT(refusal(open()), Catch::Contains("is not a run that this version can resume"));
}

TEST_CASE("run directory: whatever may hold a step's work keeps the run from being begun anew",
          "[run][run_directory][P3]") {
  const test::TempDirectory directory;
  const auto open = [&] {
    return open_run_directory(with_warmup(directory.path(), "100"), /*fresh=*/false);
  };
  const std::filesystem::path root = directory / "a";
  REQUIRE(open().ok());
  test::write_bytes(root / "config.toml", "no TOML");
  REQUIRE(open().ok());
  for (const char* const file : {"checkpoints/step-00000001", "index/CURRENT", "metrics.jsonl"}) {
    INFO(file);
    const std::filesystem::path path = root / file;
    std::filesystem::create_directories(path.parent_path());
    test::write_bytes(path, "unreadable\n");
    CHECK_THAT(refusal(open()), Catch::Contains("is not a run that this version can resume"));
    std::filesystem::remove_all(path.parent_path() == root ? path : path.parent_path());
    REQUIRE(open().ok());
  }
}

TEST_CASE("run directory: the configuration that the index has counts, and an edited copy is named",
          "[run][run_directory]") {
  const bool begun = GENERATE(true, false);
  const test::TempDirectory directory;
  const auto open = [&] {
    return open_run_directory(with_warmup(directory.path(), "100"), /*fresh=*/false);
  };
  std::string text;
  {
    const auto first = open();
    REQUIRE(first.ok());
    text = config_text(*first, with_warmup(directory.path(), "100"));
    REQUIRE(test::read_bytes(first->config_file()) == text);
    write_index(*first, {{.kind = kConfigRecorded, .text = config_record_text({.text = text})},
                         {.kind = begun ? "started" : "failed", .text = "x"}});
    test::write_bytes(first->root / "metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
  }
  const test::LogLines lines;
  CHECK(open().ok());
  CHECK(lines.count("config_edited") == 0);
  test::write_bytes(directory / "a/config.toml", "no TOML");
  const auto opened = open();
  REQUIRE(opened.ok());
  CHECK(opened->changes.empty());
  REQUIRE(opened->recorded.has_value());
  CHECK(opened->recorded->text == text);
  CHECK(opened->recorded->begun == begun);
  CHECK(lines.count("config_edited") == (begun ? 1 : 0));
}

}  // namespace train::run
