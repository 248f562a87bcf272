#include "actors/run/respawns.hpp"

#include <utility>

#include "actors/run/run_plan.hpp"

namespace train::actors {

bool Respawns::allow(std::int64_t step) {
  if (step > step_) {
    step_ = step;
    lost_ = 0;
  }
  if (++lost_ <= limit_) {
    return true;
  }
  lost_ = 0;
  return false;
}

bool can_respawn(const configs::RunConfig& config) {
  return config.recovery.rank_loss == "respawn" && config.parallel.ranks > 1 &&
         config.parallel.transport != "inproc";
}

bool take_fewer_ranks(PreparedRun& run) {
  const std::int64_t most = run.config().parallel.nodes == 1 ? run.config().parallel.ranks - 1 : 0;
  for (std::int64_t ranks = most; ranks > 0; --ranks) {
    configs::RunConfig config = run.config();
    config.parallel.ranks = ranks;
    if (auto plan = plan_run(config)) {  // else a strategy that these ranks cannot have
      run.plan = std::move(plan).value();
      return true;
    }
  }
  return false;
}

}  // namespace train::actors
