#include "engine/optimizer/ademamix.hpp"

#include <utility>
#include <vector>

#include "base/math/fixed_math.hpp"
#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/registry.hpp"
#include "kernels/backend.hpp"
#include "kernels/optimizer/ademamix.hpp"

namespace train::engine {
namespace {

/// Steps until an average with this decay has forgotten half, less one.
double half_life(double beta) { return fixed::log(0.5) / fixed::log(beta + 1e-8) - 1.0; }

double decay_of(double half_life) { return fixed::pow(0.5, 1.0 / (half_life + 1.0)); }

enum class Decay : std::uint8_t { coupled, falling };

class Ademamix final : public Optimizer {
 public:
  Ademamix(const configs::OptimizerSection& section, std::int64_t run_steps, Decay decay)
      : section_(section), slow_(slow_average(section, run_steps)), decay_(decay) {}

  [[nodiscard]] const Names& states(const Parameter& /*parameter*/) const override {
    return states_;
  }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    const SlowAverage slow = warmed_up(section_, slow_, step.step);
    const double coupled = step.decayed ? step.lr * section_.weight_decay : 0.0;
    std::vector<kernels::AdemamixParams::Tensor> tensors;
    for (const OptimizerSlice& slice : slices) {
      tensors.push_back({.p = slice.weights,
                         .g = slice.gradient,
                         .fast = slice.states[0],
                         .slow = slice.states[1],
                         .v = slice.states[2],
                         .count = slice.count()});
    }
    step.kernels->ademamix_update(
        stream,
        {.tensors = std::move(tensors),
         .guard = step.guard,
         .step = step.step,
         .lr = step.lr,
         .beta1 = section_.beta1,
         .beta2 = section_.beta2,
         .beta3 = slow.beta3,
         .alpha = slow.alpha * section_.gamma_3_factor,
         .eps = section_.eps,
         .decay = decay_ == Decay::coupled ? coupled : falling_weight_decay(section_, step)});
  }

 private:
  configs::OptimizerSection section_;
  SlowAverage slow_;
  Decay decay_;
  Names states_{"exp_avg_fast", "exp_avg_slow", "exp_avg_sq"};
};

}  // namespace

SlowAverage slow_average(const configs::OptimizerSection& section, std::int64_t run_steps) {
  const auto steps = static_cast<double>(run_steps);
  return {.beta3 = section.beta3 > 0.0 ? section.beta3 : 1.0 - section.delta / steps,
          .alpha = section.alpha > 0.0 ? section.alpha : fixed::pow(steps, 1.0 - section.kappa)};
}

SlowAverage warmed_up(const configs::OptimizerSection& section, const SlowAverage& last,
                      std::int64_t step) {
  SlowAverage now = last;
  if (step < section.alpha_warmup) {
    now.alpha *= static_cast<double>(step) / static_cast<double>(section.alpha_warmup);
  }
  if (step < section.beta3_warmup) {
    const double x = static_cast<double>(step) / static_cast<double>(section.beta3_warmup);
    now.beta3 = decay_of((1.0 - x) * half_life(section.beta1) + x * half_life(last.beta3));
  }
  return now;
}

std::unique_ptr<Optimizer> make_ademamix(const configs::OptimizerSection& section,
                                         std::int64_t run_steps) {
  return std::make_unique<Ademamix>(section, run_steps, Decay::coupled);
}

std::unique_ptr<Optimizer> make_ademamix_decaying_wd(const configs::OptimizerSection& section,
                                                     std::int64_t run_steps) {
  return std::make_unique<Ademamix>(section, run_steps, Decay::falling);
}

}  // namespace train::engine
