#include "engine/rank/exec/rank_engine.hpp"

#include <fmt/format.h>

#include "engine/rank/plan/rank_options.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/device.hpp"

namespace train::engine {
namespace {

Model make_model(const RankPlan& rank) {
  const RankOptions& options = rank.options();
  return {options.model,
          rank.kernels(),
          options.batch.micro_batch,
          options.seq_len,
          /*with_gradient=*/true,
          rank.layout().activations(checkpointing_of(options.memory))};
}

}  // namespace

RankEngine::RankEngine(const kernels::KernelTable& kernels, const Options& options)
    : rank_(kernels, options),
      model_(make_model(rank_)),
      state_(rank_),
      reference_weights_(rank_, state_),
      gathered_(rank_),
      totals_(rank_),
      gradients_(rank_, model_, state_, totals_),
      updates_(rank_, state_, gradients_, totals_),
      scores_(rank_),
      sampled_(rank_),
      reference_(rank_),
      lanes_(rank_, {.model = model_,
                     .state = state_,
                     .gathered = gathered_,
                     .gradients = gradients_,
                     .totals = totals_,
                     .scores = scores_,
                     .sampled = sampled_,
                     .reference = reference_,
                     .reference_weights = reference_weights_}),
      exchanges_(rank_, {.state = state_,
                         .gathered = gathered_,
                         .gradients = gradients_,
                         .totals = totals_,
                         .reference = reference_,
                         .reference_weights = reference_weights_}) {}

std::string RankEngine::kernel_set() const { return rank_.kernels().kernel_set(); }

StepResult RankEngine::step_result(std::int64_t step) const {
  StepResult result = totals_.step_result(step);
  if (!result.nonfinite) {
    result.optimizer_sums = updates_.sums(step);
  }
  return result;
}

MemoryPlan RankEngine::allocated() const {
  MemoryPlan memory;
  memory.activations_bytes = model_.activation_bytes();
  state_.add_allocated(memory);
  reference_weights_.add_allocated(memory);
  gathered_.add_allocated(memory);
  totals_.add_allocated(memory);
  gradients_.add_allocated(memory);
  updates_.add_allocated(memory);
  scores_.add_allocated(memory);
  sampled_.add_allocated(memory);
  memory.buffers_bytes += reference_.allocated_bytes();
  lanes_.add_allocated(memory);
  exchanges_.add_allocated(memory);
  return memory;
}

Result<std::unique_ptr<RankEngine>> make_rank_engine(const std::string& device,
                                                     const RankOptions& options) {
  TRAIN_RETURN_IF_ERROR(check_device(device, options.model));
  if (const auto plan = plan_of(options); !plan) {
    return plan.error();
  }
  TRAIN_RETURN_IF_ERROR(check_freeze(options));
  try {
    return std::make_unique<RankEngine>(kernels_of(device, options.precision.compute), options);
  } catch (const WeightsUnreadable& error) {
    return failure(error.what());
  } catch (const kernels::DeviceError& error) {
    return failure(
        fmt::format("not enough memory: {}; lower batch.micro_batch or the model's size, or split "
                    "it over more ranks (--dry-run shows what is needed)",
                    error.what()));
  }
}

}  // namespace train::engine
