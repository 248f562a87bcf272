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
  /// Rows of the learned positions that a lane may read.
  [[nodiscard]] std::int64_t used_positions(const Lane& lane) const;

  std::int64_t vocab_size_;
  bool tied_;
  float scale_;
  ParameterPlace weight_, positions_;
  std::int64_t position_rows_ = 0;  ///< 0: none.
  Workspace::Slot residual_gradient_;
};

}  // namespace train::engine
