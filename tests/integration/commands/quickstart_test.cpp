// `actortrain quickstart DIR --text FILE`: what is called again, and what is called in the wrong
// way; and its run, read from the directory above.

#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

namespace {

const Words kTinyKeys = {"run.steps=2",        "schedule.warmup_steps=1", "runtime.threads=1",
                         "model.layers=1",     "model.head_dim=8",        "data.sequence_length=32",
                         "run.sample_tokens=1"};

Words quickstart_words(const std::string& text, const Words& more_keys = {}) {
  Words words = {"quickstart", "first"};
  if (!text.empty()) {
    words.insert(words.end(), {"--text", text});
  }
  for (const std::string& key : joined(kTinyKeys, more_keys)) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

std::string train_on(const RunSite& site, const Words& words) {
  const Ended ended = site.call(words);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.err + ended.out;
}

}  // namespace

TEST_CASE("quickstart: the same command with --text resumes the run, and only that",
          "[integration][quickstart]") {
  const RunSite site;
  write_bytes(site / "text.txt", simple_text(500));
  write_bytes(site / "other.txt", simple_text(501));
  const std::string said = train_on(site, quickstart_words("text.txt"));
  CHECK(has(said, "data_prepared"));
  CHECK(has(said, "the paths below begin in this directory"));
  CHECK(has(said, "next: cd " + (site / "first").string()));
  const std::string again = train_on(site, quickstart_words("text.txt", {"run.steps=3"}));
  CHECK(has(again, "step=2 steps=3"));
  CHECK_FALSE(has(again, "data_prepared"));
  CHECK(has(train_on(site, quickstart_words("", {"run.steps=4"})), "step=3 steps=4"));
  check_mistake(site, quickstart_words("other.txt"),
                {"--text other.txt: ", "leave out --text to resume", "new directory"});
  check_mistake(site, quickstart_words("gone.txt"), {"--text gone.txt: ", "leave out --text"});
}

TEST_CASE("quickstart: a mistake leaves a directory that the corrected command can use",
          "[integration][quickstart]") {
  const RunSite site;
  write_bytes(site / "text.txt", simple_text(500));
  write_bytes(site / "short.txt", "abc");
  write_bytes(site / "records.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  std::string noise;
  for (int i = 0; i < 5000; ++i) {
    noise += static_cast<char>(i * 7919 % 251);
  }
  write_bytes(site / "noise", noise);
  // Nothing is written.
  check_mistake(site, quickstart_words("text.txt", {"run.stepz=3"}),
                {"did you mean \"run.steps\""});
  check_mistake(site, quickstart_words("text.txt", {"parallel.ranks=7"}), {"parallel.ranks is 7"});
  check_mistake(site, quickstart_words("."), {"--text .: not a regular file"});
  check_mistake(site, quickstart_words("/dev/null"), {"--text /dev/null: not a regular file"});
  check_mistake(site, quickstart_words("none"), {"--text none: no such file"});
  check_mistake(site, quickstart_words("records.jsonl"), {"--text records.jsonl: holds records"});
  const Ended binary = site.call(quickstart_words("noise"));
  check_one_line(binary, 2, {"--text noise: not text"});
  CHECK_FALSE(has(binary.err, "--input-format"));
  CHECK_FALSE(fs::exists(site / "first"));

  check_one_line(site.call(quickstart_words("short.txt")), 2,
                 {"--text short.txt: too short", "needs 33 (data.sequence_length + 1)",
                  "first can be used again"});
  CHECK(has(train_on(site, quickstart_words("text.txt")), "run_finished"));
}

TEST_CASE("quickstart: its run is read from the directory above", "[integration][quickstart]") {
  const RunSite site;
  write_bytes(site / "text.txt", simple_text(500));
  train_on(site, quickstart_words("text.txt"));
  const std::string run = "first/runs/quickstart";
  const Ended evaluated = site.call({"eval", run});
  INFO(evaluated.err);
  CHECK(evaluated.exit_code == 0);
  CHECK(has(evaluated.out, "eval step=2 "));
  CHECK(evaluated.err.empty());
  CHECK(has(train_on(site, {"replay", run}), "same bits: "));
  CHECK(has(train_on(site, {"verify", run}), "consistent: "));
  CHECK(has(train_on(site, {"status", run}), ": " + run + "/checkpoints/step-00000002\n"));
  check_mistake(site, {"generate", "first"},
                {"first: not a run directory", "did you mean \"first/runs/quickstart\"?"});

  // Other data of the same name lies here.
  fs::create_directory(site / "data");
  fs::copy(prepared_data(), site / "data/quickstart", fs::copy_options::recursive);
  const Ended chosen = site.call({"eval", run});
  CHECK(chosen.out == evaluated.out);
  CHECK(has(chosen.err, "run_paths data.dir = \"data/quickstart\": read in " +
                            (site / "first").string() + ", where the run was started, not here"));
  fs::remove_all(site / "data");
  fs::remove_all(site / "first/data");
  for (const char* const command : {"eval", "replay"}) {
    check_mistake(site, {command, run},
                  {"data.dir = \"data/quickstart\": no such directory in ",
                   (site / "first").string() + ", where the run was started"});
  }
}
