#pragma once

#include <cstdint>

#include "engine/model/unit_base.hpp"

namespace train::engine {

/// Token embedding: starts the residual stream.
class EmbeddingUnit final : public UnitBase {
 public:
  EmbeddingUnit(const kernels::KernelTable& kernels, Workspace& workspace,
                std::int64_t embedding_dim, std::int64_t vocab_size);

  void forward(kernels::Stream& stream, const float* weights, const Lane& lane,
               float* gradient) override;
  void backward(kernels::Stream& stream, const float* weights, const Lane& lane,
                float* gradient) override;

 private:
  std::int64_t vocab_size_;
  std::int64_t weight_;
  Workspace::Slot residual_gradient_;
};

}  // namespace train::engine
