// Supervised fine-tuning on packed rows, from the run file to the metrics.

#include "tests/integration/held_runs.hpp"
#include "tests/support/packed_rows.hpp"

using namespace train::test;

namespace {

/// A site whose run trains on rows/.
struct RowSite : RunSite {
  RowSite() {
    write_rows(path() / "rows", {.row_length = 32, .documents = 200});
    write_config("rows");
  }
};

const Words kRowRun = {"objective.name=sft", "run.sample_tokens=0", "run.digest_interval_steps=1"};

/// The unbroken run of one rank.
const Words& row_results() {
  static const Words results = [] {
    const RowSite site;
    site.train(kRowRun);
    return results_of(site.run());
  }();
  return results;
}

}  // namespace

TEST_CASE("sft: a run on packed rows learns, and says what was trained", "[integration][sft]") {
  const RowSite site;
  const Ended ended = site.train(kRowRun);
  INFO(ended.out);
  CHECK(has(ended.out, "evaluation at step 20"));
  double first = 0.0;
  double last = 0.0;
  int steps = 0;
  for (const nlohmann::json& line : metrics_of(site.run())) {
    if (line.contains("val_loss")) {
      last = line["val_loss"];
      first = first == 0.0 ? last : first;
      continue;
    }
    if (!line.contains("loss")) {
      continue;
    }
    ++steps;
    CHECK(line["trained_tokens"] > 0);
    CHECK(line["trained_tokens"] < 192);
    CHECK(line["row_fill"] > 0.7);
    CHECK(line["row_fill"] <= 1.0);
    CHECK(line["trained_tokens_per_second"] < line["tokens_per_second"]);
  }
  CHECK(steps == 20);
  CHECK(last < first);
  const Ended evaluated = site.call({"eval", "runs/tiny"});
  INFO(evaluated.err);
  CHECK(evaluated.exit_code == 0);
  CHECK(has(evaluated.out, fmt::format("loss={:.6f}", last)));
  const Ended verified = site.call({"verify", "runs/tiny"});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);
}

TEST_CASE("sft: the same bits at one, two and three ranks", "[integration][sft][P1]") {
  for (const int ranks : {2, 3}) {
    for (const char* strategy : {"none", "full"}) {
      CAPTURE(ranks, strategy);
      const RowSite site;
      site.train(joined(rank_keys(ranks, strategy), kRowRun));
      CHECK(results_of(site.run()) == row_results());
    }
  }
}

TEST_CASE("sft: after kill -9 the same bits follow", "[integration][sft][P1][P3]") {
  const Words keys = joined(kRowRun, {"checkpoint.interval_steps=4"});
  const RowSite site;
  // 3 lanes of 2 blocks a step: in the middle of step 11.
  const auto run = start_held(site, "head", 63, keys);
  const bool saved = run->until(
      [&] { return fs::exists(site.run() / "checkpoints/step-00000008/manifest.json"); });
  REQUIRE(saved);
  run->send(SIGKILL);
  CHECK(run->wait().signal == SIGKILL);
  let_go(site);
  const Ended ended = site.train(keys);
  CHECK(has(ended.err, "resumed step=8 "));
  CHECK(results_of(site.run()) == row_results());
}

TEST_CASE("sft: mistakes are told in one line before anything starts",
          "[integration][sft][mistakes]") {
  const RowSite site;
  const auto check = [&](const Words& keys, const Words& parts) {
    check_mistake(site, RunSite::run_words(keys), parts);
  };
  check({}, {"format is \"rows\""});
  check({"objective.name=sft", "data.sequence_length=64"}, {"data.sequence_length = 32"});
  check({"objective.name=stf"}, {"objective.name", "did you mean \"sft\""});
  check({"objective.label_smoothing=0.1"},
        {"objective.label_smoothing", "objective.name = \"pretrain\"", "sft"});
  site.write_config(prepared_data().string());
  check({"objective.name=sft"}, {"holds no packed rows"});
}
