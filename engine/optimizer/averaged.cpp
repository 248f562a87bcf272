#include "engine/optimizer/averaged.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "engine/optimizer/wrapped_optimizer.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/optimizer/average.hpp"

namespace train::engine {
namespace {

class Averaged final : public WrappedOptimizer {
 public:
  Averaged(std::unique_ptr<Optimizer> inner, const configs::TrainSection& section)
      : WrappedOptimizer(std::move(inner)), section_(section) {}

  [[nodiscard]] const Names& states(const Parameter& parameter) const override {
    const Names& of_inner = inner_->states(parameter);
    const std::lock_guard lock(mutex_);
    Names& names = names_[&of_inner];
    if (names.empty()) {
      names = of_inner;
      names.push_back(kAverageState);
    }
    return names;
  }
  [[nodiscard]] bool whole(const Parameter& parameter) const override {
    return inner_->whole(parameter);
  }
  [[nodiscard]] std::size_t scratch_bytes(const Parameter& parameter,
                                          bool knows_bf16) const override {
    return inner_->scratch_bytes(parameter, knows_bf16);
  }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    for (const OptimizerSlice& slice : slices) {
      if (step.step == 1) {
        step.kernels->copy(
            stream, {.out = average_of(slice),
                     .in = slice.weights,
                     .size_bytes = slice.count() * static_cast<std::int64_t>(sizeof(float))});
      }
    }
    inner_->update(stream, slices, step);
    average(stream, slices, step);
  }

 private:
  [[nodiscard]] float* average_of(const OptimizerSlice& slice) const {
    return slice.states[inner_->states(*slice.parameter).size()];
  }
  /// average - (1 - beta) average, then + (1 - beta) weights.
  void average(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
               const OptimizerStep& step) const {
    kernels::AverageParams params{.share =
                                      static_cast<float>(1.0 - average_beta(section_, step.step))};
    for (const OptimizerSlice& slice : slices) {
      params.tensors.push_back(
          {.average = average_of(slice), .p = slice.weights, .count = slice.count()});
    }
    step.kernels->average_update(stream, params);
  }

  configs::TrainSection section_;
  mutable std::mutex mutex_;
  mutable std::map<const Names*, Names> names_;  // By the list of `inner`, which lives as long.
};

}  // namespace

double average_beta(const configs::TrainSection& section, std::int64_t step) {
  const auto done = static_cast<double>(step);
  return section.ema_warmup ? std::min(section.ema, (1.0 + done) / (10.0 + done)) : section.ema;
}

std::unique_ptr<Optimizer> with_average(std::unique_ptr<Optimizer> inner,
                                        const configs::TrainSection& section) {
  if (section.ema == 0.0) {
    return inner;
  }
  return std::make_unique<Averaged>(std::move(inner), section);
}

}  // namespace train::engine
