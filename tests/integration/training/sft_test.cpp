// Supervised fine-tuning on packed rows, from the run file to the metrics.

#include "tests/integration/sites/row_runs.hpp"

using namespace train::test;

namespace {

const RowSet kRows{.row_length = 32, .documents = 200};

const Words kRowRun = {"objective.name=sft", "run.sample_tokens=0", "run.digest_interval_steps=1"};

const Words& sft_results() {
  static const Words results = row_results(kRows, kRowRun);
  return results;
}

}  // namespace

TEST_CASE("sft: a run on packed rows learns, and says what was trained", "[integration][sft]") {
  const RowSite site(kRows);
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
  const Ended evaluated = check_called(site, {"eval", "runs/tiny"});
  CHECK(has(evaluated.out, fmt::format("loss={:.6f}", last)));
  check_called(site, {"verify", "runs/tiny"});
}

TEST_CASE("sft: the same bits at one, two and three ranks", "[integration][sft][P1]") {
  check_ranks(kRows, kRowRun, sft_results());
}

TEST_CASE("sft: after kill -9 the same bits follow", "[integration][sft][P1][P3]") {
  const Words keys = joined(kRowRun, {"checkpoint.interval_steps=4"});
  const RowSite site(kRows);
  kill_in_step_11(site, keys);
  const Ended ended = site.train(keys);
  CHECK(has(ended.err, "resumed step=8 "));
  CHECK(results_of(site.run()) == sft_results());
}

TEST_CASE("sft: mistakes are told in one line before anything starts",
          "[integration][sft][mistakes]") {
  const RowSite site(kRows);
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
