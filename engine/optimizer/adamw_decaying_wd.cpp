#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/optimizers.hpp"
#include "engine/optimizer/weight_decay.hpp"

namespace train::engine {
namespace {

/// AdamW whose decay falls over the run and comes after the update.
class AdamWDecayingWd final : public Optimizer {
 public:
  explicit AdamWDecayingWd(const configs::OptimizerSection& section) : section_(section) {}

  [[nodiscard]] const Names& states(const Parameter& /*parameter*/) const override {
    return states_;
  }

  void update(kernels::Stream& stream, const OptimizerSlice& slice,
              const OptimizerStep& step) const override {
    auto params = adamw_params(section_, slice, step);
    params.weight_decay = 0.0;
    params.decay_after = falling_weight_decay(section_, step);
    step.kernels->adamw_update(stream, params);
  }

 private:
  configs::OptimizerSection section_;
  Names states_{"exp_avg", "exp_avg_sq"};
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw_decaying_wd(const configs::OptimizerSection& section,
                                                  std::int64_t /*run_steps*/) {
  return std::make_unique<AdamWDecayingWd>(section);
}

}  // namespace train::engine
