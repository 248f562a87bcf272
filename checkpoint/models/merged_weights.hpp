#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "engine/model/weight_source.hpp"

namespace train::checkpoint {

/// A model that is merged with others, and its share of the sum.
struct MergedModel {
  std::shared_ptr<const engine::WeightSource> weights;
  double share = 1.0;
};

/// Weighted sums of the weights of several models (Wortsman et al. 2022,
/// https://arxiv.org/abs/2203.05482): sum over m of share_m w_m, each product and their sum in
/// double, rounded once. The products of an element are added from the least to the greatest, so
/// that the order of the models does not change a bit.
class MergedWeights final : public engine::WeightSource {
 public:
  /// `whole`: parameters are read in one piece, which merged adapters need; otherwise memory is
  /// bounded.
  MergedWeights(std::vector<MergedModel> models, bool whole)
      : models_(std::move(models)), whole_(whole) {}

  /// Errors: a sum that is not finite (user); those of the models.
  Status read_rows(const engine::Parameter& parameter, std::int64_t first_row, std::int64_t rows,
                   std::span<float> out) const override;

 private:
  struct Piece;
  [[nodiscard]] std::vector<Piece> pieces_of(const Piece& all) const;
  /// `values`: those of the first model, those of the others `apart` elements behind each other.
  Status add_up(const Piece& piece, const float* values, std::size_t apart) const;

  std::vector<MergedModel> models_;
  bool whole_;
};

}  // namespace train::checkpoint
