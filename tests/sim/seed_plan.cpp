#include "tests/sim/seed_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tests/support/runs/small_run.hpp"

namespace train::sim {
namespace {

template <class Value, std::size_t Count>
Value one_of(Random& random, const std::array<Value, Count>& values) {
  return values[random() % Count];
}

/// `least` to `most`, both included.
std::int64_t between(Random& random, std::int64_t least, std::int64_t most) {
  return least + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most - least + 1));
}

configs::ParallelSection parallel_of(Random& random, std::int64_t ranks) {
  static constexpr std::array<const char*, 5> kStrategies = {"none", "optimizer", "gradient",
                                                             "full", "hybrid"};
  static constexpr std::array<const char*, 4> kSyncs = {"auto", "every_lane", "last_lane", "2"};
  configs::ParallelSection parallel;
  parallel.ranks = ranks;
  parallel.strategy = one_of(random, kStrategies);
  parallel.sync = one_of(random, kSyncs);
  if (parallel.strategy == "hybrid") {
    parallel.group = ranks % 2 == 0 && ranks > 2 ? ranks / 2 : ranks;
  }
  parallel.wrapping = {"per_block"};  // By size such a small model would be one group.
  parallel.gather_credits = between(random, 3, 4);
  parallel.prefetch_forward = between(random, 0, 1);
  parallel.prefetch_backward = between(random, 0, 1);
  return parallel;
}

/// A run of some steps, a few thousand weights, a few hundred tokens.
configs::RunConfig config_of(Random& random) {
  static constexpr std::array<std::int64_t, 15> kRanks = {1, 1, 2, 2, 2, 2, 3, 3,
                                                          3, 4, 4, 5, 6, 7, 8};
  configs::RunConfig config = test::small_run(32);
  config.run.seed = 5;
  config.run.steps = between(random, 2, 5);
  config.run.steps_per_job = random() % 8 == 0 ? between(random, 1, 2) : 0;
  config.run.digest_interval_steps = 1;
  config.run.tensorboard = false;
  const std::int64_t ranks = one_of(random, kRanks);
  config.batch.lanes = ranks > 4 ? 8 : 4;
  config.optimizer.lr = 1e-2;
  config.schedule.name = "constant";
  config.eval.interval_steps = between(random, 0, 2);
  config.eval.lanes = 3;
  config.checkpoint.interval_steps = between(random, 1, 3);
  config.checkpoint.keep_last = between(random, 1, 2);
  config.checkpoint.local_dir = random() % 3 == 0 ? "local" : "none";
  config.checkpoint.drain_s = 20;
  config.recovery.max_respawns = between(random, 0, 2);
  config.parallel = parallel_of(random, ranks);
  config.runtime.threads = 1;
  return config;
}

/// Makes it a run of steps of two passes over two layers, one after the other: most of them are
/// compared with the model that began the run, whose forward passes come before.
void unlearn(Random& random, configs::RunConfig& config) {
  static constexpr std::array<const char*, 4> kRetain = {"nll", "kl", "l2", "l2"};
  static constexpr std::array<const char*, 3> kForget = {"max_entropy", "random_targets", "npo"};
  configs::ObjectiveSection& objective = config.objective;
  objective.name = "sequential_unlearning";
  objective.layer_stride = 1;
  objective.steps_per_layer = between(random, 1, 2);
  objective.retain_loss = one_of(random, kRetain);
  objective.forget_loss = one_of(random, kForget);
  objective.maintain_unlearned = random() % 4 == 0;
  objective.l2sp_coefficient = random() % 4 == 0 ? 0.01 : 0.0;
  config.model.layers = 2;
  config.model.z_loss_coeff = 0.0;
  config.run.steps = 2 * objective.steps_per_layer;
}

/// Few events of a short run, many of a long one, with as much weight on the beginning.
std::int64_t moment_of(Random& random, const configs::RunConfig& config) {
  const std::int64_t whole = config.run.steps * config.batch.lanes * 100 *
                             std::max<std::int64_t>(1, config.parallel.ranks / 2);
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(whole)) >> (random() % 4);
}

}  // namespace

std::string_view name_of(FaultKind kind) {
  static constexpr std::array<std::string_view, kFaultKinds> kNames = {
      "kill_rank",     "kill_rank_in_call",
      "cut_rank",      "stall_network",
      "full_disk",     "signal",
      "kill_launcher", "kill_launcher_in_call",
      "power_cut",     "power_cut_in_call",
      "stale_message"};
  return kNames[static_cast<std::size_t>(kind)];
}

SeedPlan plan_of_seed(std::uint64_t seed) {
  static constexpr std::array<std::int64_t, 4> kTicks = {1'000, 100'000, 1'000'000, 20'000'000};
  Random random(seed * 2 + 1);
  SeedPlan plan{.seed = seed, .config = config_of(random), .faults = {}};
  if (seed % 8 == 5) {
    unlearn(random, plan.config);
  }
  plan.tick_ns = one_of(random, kTicks);
  plan.slow_percent = random() % 3 * 30;
  const std::int64_t faults = between(random, 0, 4);
  for (std::int64_t i = 0; i < faults; ++i) {
    const auto kind = static_cast<FaultKind>(random() % kFaultKinds);
    const std::int64_t after = moment_of(random, plan.config);
    if (kind == FaultKind::stale_message) {  // there has to be a generation before
      plan.faults.push_back({.kind = FaultKind::kill_rank, .after = after / 2, .number = random()});
    }
    plan.faults.push_back({.kind = kind, .after = after, .number = random()});
  }
  return plan;
}

std::string describe_objective(const configs::RunConfig& config) {
  const configs::ObjectiveSection& objective = config.objective;
  return objective.name == "pretrain"
             ? ""
             : fmt::format("retains by {}{}, forgets by {}{}", objective.retain_loss,
                           objective.l2sp_coefficient > 0.0 ? " and weights" : "",
                           objective.forget_loss,
                           objective.maintain_unlearned ? ", layers of earlier phases too" : "");
}

std::string describe(const SeedPlan& plan) {
  const configs::RunConfig& config = plan.config;
  std::string text = fmt::format(
      "{} ranks, {}, sync {}, {} lanes, {} steps, saved every {}{}, evaluated every {}",
      config.parallel.ranks, config.parallel.strategy, config.parallel.sync, config.batch.lanes,
      config.run.steps, config.checkpoint.interval_steps,
      config.checkpoint.local_dir == "none" ? "" : " in two places", config.eval.interval_steps);
  if (const std::string objective = describe_objective(config); !objective.empty()) {
    text += ", " + objective;
  }
  for (const Fault& fault : plan.faults) {
    text += fmt::format(", {} {} events on", name_of(fault.kind), fault.after);
  }
  return text;
}

}  // namespace train::sim
