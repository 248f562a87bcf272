#include "engine/optimizer/tallied.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/optimizer/wrapped_optimizer.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/experts/experts.hpp"

namespace train::engine {
namespace {

// Tallies are exact: there is no bf16 copy of them.
class Tallied final : public WrappedOptimizer {
 public:
  explicit Tallied(std::unique_ptr<Optimizer> inner) : WrappedOptimizer(std::move(inner)) {}

  [[nodiscard]] const Names& states(const Parameter& parameter) const override {
    static const Names kNone;
    return parameter.tallied ? kNone : inner_->states(parameter);
  }
  [[nodiscard]] bool whole(const Parameter& parameter) const override {
    return parameter.tallied ? parameter.balances : inner_->whole(parameter);
  }
  [[nodiscard]] std::size_t scratch_bytes(const Parameter& parameter,
                                          bool knows_bf16) const override {
    return parameter.tallied ? 0 : inner_->scratch_bytes(parameter, knows_bf16);
  }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    const auto is_tallied = [](const OptimizerSlice& slice) { return slice.parameter->tallied; };
    if (std::ranges::none_of(slices, is_tallied)) {
      inner_->update(stream, slices, step);
      return;
    }
    std::vector<OptimizerSlice> trained;
    for (const OptimizerSlice& slice : slices) {
      if (is_tallied(slice)) {
        take(stream, slice, step);
      } else {
        trained.push_back(slice);
      }
    }
    if (!trained.empty()) {
      inner_->update(stream, trained, step);
    }
  }

 private:
  void take(kernels::Stream& stream, const OptimizerSlice& slice, const OptimizerStep& step) const {
    if (slice.parameter->balances) {
      step.kernels->choice_bias_update(stream,
                                       {.bias = slice.weights,
                                        .counts = slice.gradient,
                                        .experts = slice.count(),
                                        .rate = static_cast<float>(slice.parameter->tally_rate),
                                        .guard = step.guard});
    } else {
      step.kernels->copy(stream,
                         {.out = slice.weights,
                          .in = slice.gradient,
                          .size_bytes = slice.count() * static_cast<std::int64_t>(sizeof(float))});
    }
    if (step.diagnosed && slice.row_sums != nullptr && !inner_->row_sums().empty()) {
      const auto doubles = slice.rows * static_cast<std::int64_t>(inner_->row_sums().size());
      step.kernels->fill(stream,
                         {.out = reinterpret_cast<float*>(slice.row_sums), .count = 2 * doubles});
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> with_tallies(std::unique_ptr<Optimizer> inner) {
  return std::make_unique<Tallied>(std::move(inner));
}

}  // namespace train::engine
