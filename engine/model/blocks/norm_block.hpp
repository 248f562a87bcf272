#pragma once

#include <cstdint>
#include <string>

#include "engine/model/blocks/block.hpp"

namespace train::engine {

/// LayerNorm or RMSNorm over rows, weight only. Keeps its statistics; the caller owns x.
class NormBlock {
 public:
  struct Options {
    kernels::NormKind kind = kernels::NormKind::layer;
    std::int64_t cols = 0;
    float eps = 1e-5F;
  };
  /// kernels::NormResidual.
  struct Residual {
    ConstElements base, branch;
    Elements sum;
    float scale = 1.0F;
  };
  NormBlock(const BlockContext& context, const std::string& name, const Options& options);

  /// x, result: [rows, cols]. The result lasts until the next norm of the model at least.
  Elements forward(const BlockCall& call, ConstElements x) const;
  /// forward() of residual.sum, which it writes on the way.
  Elements forward(const BlockCall& call, const Residual& residual) const;
  /// The same result in the backward pass.
  Elements output_again(const BlockCall& call, ConstElements x) const {
    return workspace_->lean() ? forward(call, x) : output();
  }
  [[nodiscard]] Elements output() const { return workspace_->at(output_); }
  [[nodiscard]] Workspace::Slot output_slot() const { return output_; }
  /// Adds the gradient at x to dx, or writes it when not `accumulate` (dx may be dy then).
  void backward(const BlockCall& call, ConstElements x, ConstElements dy, Elements dx,
                bool accumulate) const;

 private:
  Elements normalise(const BlockCall& call, ConstElements x, const Residual& residual) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Options options_;
  std::int64_t weight_;  ///< Offset.
  Workspace::Slot output_, mean_, rstd_;
};

/// The same norm over each head of a projection, one weight vector of head_dim for all heads, and
/// the rotation of what comes out. Keeps its statistics; input and output are the caller's.
class HeadNormBlock {
 public:
  struct Options {
    kernels::NormKind kind = kernels::NormKind::layer;
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    float eps = 1e-5F;
  };
  HeadNormBlock(const BlockContext& context, const std::string& name, const Options& options);

  void forward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout, Elements y,
               kernels::RowLayout y_layout, const kernels::RowRotation& rotation) const;
  /// Replaces d (the gradient at y) by the gradient at x; both are laid out as x is.
  void backward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout, Elements d,
                const kernels::RowRotation& rotation) const;

 private:
  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Options options_;
  std::int64_t weight_;  ///< Offset.
  Workspace::Slot mean_, rstd_;
};

}  // namespace train::engine
