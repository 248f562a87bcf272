#include "engine/optimizer/optimizers.hpp"

namespace train::engine {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const configs::OptimizerSection& section) : section_(section) {}

  [[nodiscard]] const Names& states(const Parameter& /*parameter*/) const override {
    return states_;
  }

  void update(kernels::Stream& stream, const OptimizerSlice& slice,
              const OptimizerStep& step) const override {
    step.kernels->adamw_update(stream,
                               {.p = slice.weights,
                                .g = slice.gradient,
                                .m = slice.states[0],
                                .v = slice.states[1],
                                .gate = step.gate,
                                .count = slice.count(),
                                .step = step.step,
                                .lr = step.lr,
                                .beta1 = section_.beta1,
                                .beta2 = section_.beta2,
                                .eps = section_.eps,
                                .weight_decay = step.decayed ? section_.weight_decay : 0.0});
  }

 private:
  configs::OptimizerSection section_;
  Names states_{"exp_avg", "exp_avg_sq"};
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const configs::OptimizerSection& section,
                                      std::int64_t /*run_steps*/) {
  return std::make_unique<AdamW>(section);
}

}  // namespace train::engine
