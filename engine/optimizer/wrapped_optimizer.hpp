#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

/// An optimizer around another, whose sums, diagnostics and rounding it has.
/// Ownership: owns `inner`.
class WrappedOptimizer : public Optimizer {
 public:
  [[nodiscard]] bool rounds() const override { return inner_->rounds(); }
  [[nodiscard]] std::span<const std::string_view> row_sums() const override {
    return inner_->row_sums();
  }
  [[nodiscard]] std::vector<OptimizerDiagnostic> diagnose(
      std::span<const double> sums) const override {
    return inner_->diagnose(sums);
  }

 protected:
  explicit WrappedOptimizer(std::unique_ptr<Optimizer> inner) : inner_(std::move(inner)) {}

  std::unique_ptr<Optimizer> inner_;
};

}  // namespace train::engine
