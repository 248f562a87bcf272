#pragma once

#include <cstdint>

namespace train::engine {

/// What the backward pass of a transformer block computes again rather than finds in memory: the
/// same kernels on the same values, so the same bits.
enum class Recompute : std::uint8_t {
  nothing,
  attention,  ///< All from the first norm to the heads' output; the MLP's is kept.
  mlp,        ///< All from the second norm to what the activation is applied to.
  block,      ///< Both: the block keeps its input alone.
};

/// Activation checkpointing (Chen et al. 2016, https://arxiv.org/abs/1604.06174).
struct Checkpointing {
  std::int64_t every = 0;  ///< Of every so manieth transformer block; 1: of all, 0: of none.
  Recompute part = Recompute::block;  ///< Of such a block.

  [[nodiscard]] Recompute of_layer(std::int64_t layer) const {
    return every > 0 && (layer + 1) % every == 0 ? part : Recompute::nothing;
  }
};

}  // namespace train::engine
