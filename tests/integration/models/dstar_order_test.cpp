// Runs that read in the order of the DSTAR trainer: the tokens are its tokens, whatever the ranks,
// and a resumed run goes on where it was.

#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

namespace {

// A step has 3 lanes of 2 sequences of 32 tokens; 15 steps are several epochs of these files.
const Words kOrderedRun = {"data.order=dstar",      "data.seed=7",
                           "run.steps=15",          "run.digest_interval_steps=1",
                           "eval.interval_steps=5", "checkpoint.interval_steps=5",
                           "checkpoint.keep_last=0"};

/// train.bin of `tokens`, or several files of so many each.
void write_files(const fs::path& directory, const std::vector<std::size_t>& tokens) {
  fs::create_directories(directory);
  std::mt19937 random(11);
  const auto text = [&random](std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) {
      bytes.push_back(static_cast<char>(random() % 64));
      bytes.push_back('\0');
    }
    return bytes;
  };
  for (std::size_t file = 0; file < tokens.size(); ++file) {
    write_bytes(
        directory / (tokens.size() == 1 ? "train.bin" : fmt::format("train_{:04}.bin", file)),
        text(tokens[file]));
  }
  write_bytes(directory / "val.bin", text(700));
  write_bytes(directory / "meta.json", R"({"vocab_size": 64})");
}

}  // namespace

TEST_CASE("dstar order: any ranks and any stop give the bits of one rank",
          "[integration][.full][dstar_order][P1][ST-10]") {
  const std::vector<std::size_t> files =
      GENERATE(std::vector<std::size_t>{1000}, std::vector<std::size_t>{400, 333, 270});
  const RunSite site;
  write_files(site / "tokens", files);
  site.write_config((site / "tokens").string());
  site.train(joined(kOrderedRun, {"run.name=one"}));
  const Words one = results_of(site.run("one"));
  REQUIRE(one.size() == 15 + 4);

  site.train(rank_keys(2, "full", joined(kOrderedRun, {"run.name=two"})));
  CHECK(results_of(site.run("two")) == one);

  forget_after(site.run("one"), 5);
  site.train(rank_keys(3, "none", joined(kOrderedRun, {"run.name=one"})));
  CHECK(results_of(site.run("one")) == one);

  Words other = joined(kOrderedRun, {"run.name=other"});
  other[1] = "data.seed=8";
  site.train(other);
  CHECK(results_of(site.run("other")) != one);

  check_mistake(site, RunSite::run_words(joined(other, {"run.name=one"})),
                {"data.seed was 7", "is 8 now"});
}

TEST_CASE("dstar order: files without a batch and settings of the other order are mistakes",
          "[integration][dstar_order][mistakes]") {
  const RunSite site;
  write_files(site / "tokens", {400, 97});
  site.write_config((site / "tokens").string());
  check_mistake(site, RunSite::run_words(kOrderedRun),
                {"train_0001.bin: 97 tokens", "batch.micro_batch"});
  check_mistake(site, RunSite::run_words({"data.seed=7"}), {"data.seed belongs to data.order"});
}
