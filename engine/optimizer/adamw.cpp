#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/optimizers.hpp"

namespace train::engine {
namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const configs::OptimizerSection& section) : section_(section) {}

  [[nodiscard]] const Names& states(const Parameter& /*parameter*/) const override {
    return states_;
  }

  [[nodiscard]] bool rounds() const override { return true; }

  void update(kernels::Stream& stream, const OptimizerSlice& slice,
              const OptimizerStep& step) const override {
    step.kernels->adamw_update(stream, adamw_params(section_, slice, step));
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
