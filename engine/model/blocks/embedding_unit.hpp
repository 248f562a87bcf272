#pragma once

#include <cstdint>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Token embedding, and learned positions where the model has them: starts the residual stream.
/// With tied embeddings the head uses its matrix too.
class EmbeddingUnit final : public LayerUnit {
 public:
  EmbeddingUnit(const kernels::KernelTable& kernels, Workspace& workspace, const ModelSpec& spec);

  void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;
  void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;

 private:
  /// Embeds tokens, side by side, to `out`.
  void embed(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane,
             Elements out) const;
  /// Lays the prefix and the embedded tokens of each sequence one behind the other.
  void put_prefixes(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) const;
  /// The gradient of the prefix; returns that of the tokens' rows, side by side.
  [[nodiscard]] ConstElements prefix_backward(kernels::Stream& stream, const UnitMemory& memory,
                                              const Lane& lane) const;
  /// Rows of the learned positions that a lane may read.
  [[nodiscard]] std::int64_t used_positions(const Lane& lane) const;

  std::int64_t vocab_size_;
  bool tied_;
  float scale_;
  ParameterPlace weight_, positions_, prefix_rows_;
  std::int64_t position_rows_ = 0;  ///< 0: none.
  Workspace::Slot residual_gradient_;
  Workspace::Slot token_rows_ = 0, prefix_gradients_ = 0;
};

}  // namespace train::engine
