#pragma once

#include <cstdint>

#include "engine/model/blocks/unit_base.hpp"
#include "engine/model/model_shape.hpp"

namespace train::engine {

/// Token embedding: starts the residual stream. With tied embeddings the head uses its matrix too.
class EmbeddingUnit final : public UnitBase {
 public:
  EmbeddingUnit(const kernels::KernelTable& kernels, Workspace& workspace, const ModelShape& shape);

  void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;
  void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;

 private:
  std::int64_t vocab_size_;
  bool tied_;
  std::int64_t weight_;
  Workspace::Slot residual_gradient_;
};

}  // namespace train::engine
