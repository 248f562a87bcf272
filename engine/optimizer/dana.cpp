#include <cmath>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/registry.hpp"
#include "kernels/backend.hpp"
#include "kernels/optimizer/dana.hpp"

namespace train::engine {
namespace {

constexpr auto kRowSums =
    std::to_array<std::string_view>({"alpha", "ratio", "momentum_squared", "count"});
static_assert(sizeof(kernels::DanaRowSums) == kRowSums.size() * sizeof(double));

enum class Member : std::uint8_t { adana, star };
enum class Clip : std::uint8_t { no, yes };

/// ADana and Dana-Star, with or without a clip of the scaled signal-to-noise ratio.
class Dana final : public Optimizer {
 public:
  Dana(const configs::OptimizerSection& section, Member member, Clip clip)
      : section_(section), clip_(clip == Clip::yes ? section.clipsnr : 0.0) {
    if (member == Member::star) {
      states_.emplace_back("tau");
    }
  }

  [[nodiscard]] const Names& states(const Parameter& /*parameter*/) const override {
    return states_;
  }

  [[nodiscard]] std::span<const std::string_view> row_sums() const override { return kRowSums; }

  [[nodiscard]] std::vector<OptimizerDiagnostic> diagnose(
      std::span<const double> sums) const override {
    TRAIN_CHECK(sums.size() == kRowSums.size(), "{} sums", sums.size());
    const double count = sums[3];
    const double alpha = count > 0.0 ? sums[0] / count : 0.0;
    const double ratio = count > 0.0 ? sums[1] / count : 0.0;
    return {{"alpha", alpha},
            {"auto_factor", ratio},
            {"kappa_factor", ratio > 0.0 ? alpha / ratio : 0.0},
            {"m_norm", std::sqrt(sums[2])}};
  }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    std::vector<kernels::DanaParams::Tensor> tensors;
    for (const OptimizerSlice& slice : slices) {
      auto* sums =
          step.diagnosed ? reinterpret_cast<kernels::DanaRowSums*>(slice.row_sums) : nullptr;
      tensors.push_back({.p = slice.weights,
                         .g = slice.gradient,
                         .m = slice.states[0],
                         .v = slice.states[1],
                         .tau = slice.states[2],
                         .row_sums = sums,
                         .rows = slice.rows,
                         .cols = slice.parameter->cols()});
    }
    step.kernels->dana_update(stream, {.tensors = std::move(tensors),
                                       .guard = step.guard,
                                       .step = step.step,
                                       .lr = step.lr,
                                       .delta = section_.delta,
                                       .kappa = section_.kappa,
                                       .eps = section_.eps,
                                       .gamma_3 = section_.gamma_3_factor,
                                       .clip = clip_,
                                       .decay = falling_weight_decay(section_, step)});
  }

 private:
  configs::OptimizerSection section_;
  double clip_;
  Names states_{"m", "v"};
};

}  // namespace

std::unique_ptr<Optimizer> make_adana(const configs::OptimizerSection& section,
                                      std::int64_t /*run_steps*/) {
  return std::make_unique<Dana>(section, Member::adana, Clip::no);
}

std::unique_ptr<Optimizer> make_dana_mk4(const configs::OptimizerSection& section,
                                         std::int64_t /*run_steps*/) {
  return std::make_unique<Dana>(section, Member::adana, Clip::yes);
}

std::unique_ptr<Optimizer> make_dana_star(const configs::OptimizerSection& section,
                                          std::int64_t /*run_steps*/) {
  return std::make_unique<Dana>(section, Member::star, Clip::no);
}

std::unique_ptr<Optimizer> make_dana_star_mk4(const configs::OptimizerSection& section,
                                              std::int64_t /*run_steps*/) {
  return std::make_unique<Dana>(section, Member::star, Clip::yes);
}

}  // namespace train::engine
