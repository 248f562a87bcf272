#pragma once

#include "engine/objective/row_weighting.hpp"

namespace train::engine {

/// Negative preference optimisation (Zhang et al. 2024), of documents that are to be forgotten: the
/// mean over documents of npo_loss(r), r the mean over a document's trained targets of log p -
/// log p0. A document without any counts nowhere. At the frozen copy r is 0 and the loss log 2.
///
/// Threading: immutable.
class NpoWeighting final : public RowWeighting {
 public:
  explicit NpoWeighting(double beta) : beta_(beta) {}

  [[nodiscard]] std::span<const std::string_view> metrics() const override { return {}; }
  [[nodiscard]] bool needs_reference() const override { return true; }
  void weigh(const LaneLogProbs& lane, LaneTerms& terms) const override;

 private:
  double beta_;
};

}  // namespace train::engine
