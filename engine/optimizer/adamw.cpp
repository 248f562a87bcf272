#include "kernels/optimizer/adamw.hpp"
#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/registry.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

enum class AdamwDecay : std::uint8_t {
  coupled,
  falling,  ///< Falls over the run and comes after the update.
};

class AdamW final : public Optimizer {
 public:
  AdamW(const configs::OptimizerSection& section, AdamwDecay decay)
      : section_(section), decay_(decay) {}

  [[nodiscard]] const Names& states(const Parameter& /*parameter*/) const override {
    return states_;
  }
  [[nodiscard]] bool rounds() const override { return decay_ == AdamwDecay::coupled; }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    auto params = adamw_params(section_, slices, step);
    if (decay_ == AdamwDecay::falling) {
      params.weight_decay = 0.0;
      params.decay_after = falling_weight_decay(section_, step);
    }
    step.kernels->adamw_update(stream, params);
  }

 private:
  configs::OptimizerSection section_;
  AdamwDecay decay_;
  Names states_{"exp_avg", "exp_avg_sq"};
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const configs::OptimizerSection& section,
                                      std::int64_t /*run_steps*/) {
  return std::make_unique<AdamW>(section, AdamwDecay::coupled);
}

std::unique_ptr<Optimizer> make_adamw_decaying_wd(const configs::OptimizerSection& section,
                                                  std::int64_t /*run_steps*/) {
  return std::make_unique<AdamW>(section, AdamwDecay::falling);
}

}  // namespace train::engine
