// What a start and a lost rank cost does not grow with the run's past: counted, not timed.

#include "tests/support/runs/long_past.hpp"
#include "tests/integration/sites/endless_run.hpp"
#include "tests/support/processes/process_cost.hpp"

using namespace train::test;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;

/// Of the process that holds the run's files.
struct StartCost {
  ProcessCost start;  ///< Until the first new step.
  ProcessCost loss;   ///< From the end of a rank to the next new step.
};

/// Resumes the run, ends a rank, and stops it in order.
StartCost cost_of_start(const RunSite& site, const Words& keys) {
  const auto launcher = site.start_run(keys);
  const std::size_t respawned = count_events(site.run(), "respawned");
  wait_for_step(site, *launcher, last_step(site.run()) + 1);
  StartCost cost{.start = cost_of(launcher->pid()), .loss = {}};
  wait_for_step(site, *launcher, last_step(site.run()) + 12);  // memory has a newer state by now
  forget_peak_of(launcher->pid());
  const ProcessCost before = cost_of(launcher->pid());
  REQUIRE(::kill(workers_of(site.path()).at(1), SIGKILL) == 0);
  wait_for_event(site, *launcher, "respawned", respawned + 1);
  wait_for_step(site, *launcher, last_step(site.run()) + 1);
  cost.loss = cost_of(launcher->pid()) - before;
  CHECK(has(stopped(*launcher).err, "from memory"));
  return cost;
}

}  // namespace

TEST_CASE("long past: a start and a lost rank read no more for it, and need no more memory",
          "[integration][.full][recovery][P4]") {
  const RunSite site;
  const Words keys =
      rank_keys(2, "none",
                {kEndless, "checkpoint.interval_steps=1000000", "checkpoint.keep_last=1",
                 "eval.interval_steps=0", "run.digest_interval_steps=0", "run.tensorboard=false",
                 "schedule.name=constant"});
  cost_of_start(site, keys);
  const StartCost none = cost_of_start(site, keys);
  lengthen(site.run(), {});
  cost_of_start(site, keys);
  // The store sorts what was put into it at once, beside the run and in whichever start it comes to
  // it: one may read more, and no other.
  int more = 0;
  std::string reads;
  for (int start = 0; start < 5; ++start) {
    const StartCost cost = cost_of_start(site, keys);
    bool sorted = false;
    for (const auto& [what, with, without] :
         {std::tuple("start", cost.start, none.start), std::tuple("loss", cost.loss, none.loss)}) {
      CAPTURE(start, what, with.peak_bytes, without.peak_bytes);
      reads += fmt::format("{} {}: {} bytes, {} before\n", what, start, with.read_bytes,
                           without.read_bytes);
      sorted = sorted || with.read_bytes > without.read_bytes + kMiB;
      CHECK(with.peak_bytes <= without.peak_bytes + 8 * kMiB);
    }
    more += sorted ? 1 : 0;
  }
  INFO(reads);
  CHECK(more <= 1);
}
