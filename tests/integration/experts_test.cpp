// Runs of models with experts, in processes: what was chosen in the step before is part of what a
// run resumes from.
#include <catch2/catch.hpp>
#include <string>

#include "tests/integration/rank_runs.hpp"
#include "tests/integration/run_site.hpp"

namespace train::test {
namespace {

const Words kExperts = {"run.steps=24",
                        "run.log_interval_steps=1",
                        "checkpoint.interval_steps=8",
                        "model.experts=6",
                        "model.experts_per_token=2",
                        "model.expert_hidden=24",
                        R"(model.balance=["switch:previous_step:0.05", "z:0.001"])"};

}  // namespace

TEST_CASE(
    "experts: ranks, strategies and what is computed again do not show, nor do parts of a run",
    "[integration][experts][P1]") {
  const RunSite site;
  site.train(joined(kExperts, {"run.name=alone"}));
  const Words alone = results_of(site.run("alone"));
  const std::string metrics = read_bytes(site.run("alone") / "metrics.jsonl");
  INFO(metrics);
  CHECK(count_of(metrics, "\"expert_load\":[[") == 24);
  CHECK(count_of(metrics, "\"balance/switch_previous_step\":") == 24);
  site.train(joined(kExperts, {"run.name=sharded", "parallel.ranks=3", "parallel.strategy=full",
                               "memory.activation_checkpointing=all"}));
  CHECK(results_of(site.run("sharded")) == alone);
  const Words parts = joined(kExperts, {"run.name=parts", "run.steps_per_job=9"});
  CHECK(site.start_run(joined(parts, {"parallel.ranks=2"}))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(joined(parts, {"parallel.ranks=3", "parallel.strategy=full"}));
  CHECK(results_of(site.run("parts")) == alone);
}

}  // namespace train::test
