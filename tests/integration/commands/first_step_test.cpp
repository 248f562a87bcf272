// Runs that end before their first step is finished, and those that seem to.

#include "tests/integration/sites/audit_runs.hpp"

using namespace train::test;

namespace {

/// Tokens from 0 up to 99, which a vocabulary of 64 does not have.
std::string many_tokens() {
  std::string bytes;
  for (int i = 0; i < 3000; ++i) {
    bytes.push_back(static_cast<char>(i % 100));
    bytes.push_back('\0');
  }
  return bytes;
}

const Words kChanged = {"run", "tiny.toml", "--set", "model.layers=1"};
const Words kRefusal = {"model.layers was 2 so far and is 1 now"};

}  // namespace

TEST_CASE("first step: a run that failed before it is begun anew under its name",
          "[integration][run]") {
  const RunSite site;
  write_tokens(site, many_tokens());
  const Ended failed = site.call({"run", "tiny.toml", "--set", "model.vocab_size=64"});
  INFO(failed.err);
  REQUIRE(failed.exit_code != 0);
  REQUIRE(has(failed.err, "outside the vocabulary of 64"));
  REQUIRE(has(read_bytes(site.run() / "config.toml"), "vocab_size = 64"));
  const Ended ended = site.train({"model.vocab_size=128"});
  CHECK(has(ended.err, "run_begun_anew "));
  CHECK(has(read_bytes(site.run() / "config.toml"), "vocab_size = 128"));
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20});
  CHECK_FALSE(fs::exists(site.run("tiny-2")));
  site.train({"model.vocab_size=128", "run.name=whole"});
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
}

TEST_CASE("first step: a run that finished one is kept, whichever of its traces is left",
          "[integration][run]") {
  const RunSite site;
  site.train();
  SECTION("all of them") {}
  SECTION("a checkpoint") {
    fs::remove_all(site.run() / "index");
    fs::remove(site.run() / "metrics.jsonl");
  }
  SECTION("a damaged checkpoint") {
    fs::remove_all(site.run() / "index");
    fs::remove(site.run() / "metrics.jsonl");
    fs::remove_all(site.run() / "checkpoints/step-00000020");
    fs::rename(site.run() / "checkpoints/step-00000010",
               site.run() / "checkpoints/damaged-step-00000010");
  }
  SECTION("metrics") {
    fs::remove_all(site.run() / "index");
    fs::remove_all(site.run() / "checkpoints");
  }
  SECTION("the journal") {
    fs::remove_all(site.run() / "checkpoints");
    fs::remove(site.run() / "metrics.jsonl");
  }
  SECTION("an index that cannot be read") {
    fs::remove_all(site.run() / "checkpoints");
    fs::remove(site.run() / "metrics.jsonl");
    write_bytes(site.run() / "index/CURRENT", "nothing");
  }
  check_mistake(site, kChanged, kRefusal);
}

TEST_CASE("first step: an evaluation before it is no step", "[integration][run]") {
  const RunSite site;
  site.train();
  fs::remove_all(site.run() / "index");
  fs::remove_all(site.run() / "checkpoints");
  const Words lines = lines_of(read_bytes(site.run() / "metrics.jsonl"));
  REQUIRE(has(first_of(lines), "\"event\":\"evaluation\",\"step\":0"));
  write_bytes(site.run() / "metrics.jsonl", lines.front() + "\n");
  const Ended ended = site.train({"model.layers=1"});
  CHECK(has(ended.err, "run_begun_anew "));
}
