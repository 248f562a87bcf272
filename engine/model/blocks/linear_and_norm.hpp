#pragma once

#include <cstdint>
#include <string>

#include "engine/model/blocks/layer_unit.hpp"

namespace train::engine {

/// y = x W^T without bias; W is [outputs, inputs] as in torch. Keeps nothing: the caller owns x.
/// `y_stride`, `dy_stride`: elements between rows, so several layers can write one wide buffer.
class LinearBlock {
 public:
  LinearBlock(const BlockContext& context, const std::string& name, std::int64_t inputs,
              std::int64_t outputs, InitKind init);

  [[nodiscard]] std::int64_t outputs() const { return outputs_; }

  void forward(const BlockCall& call, ConstElements x, Elements y, std::int64_t y_stride) const;
  /// dx (+)= dy W.
  void backward_input(const BlockCall& call, ConstElements dy, std::int64_t dy_stride, Elements dx,
                      bool accumulate = false) const;
  /// dW = dy^T x, overwritten.
  void backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                       ConstElements x) const;

 private:
  const kernels::KernelTable* kernels_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  std::int64_t weight_;  ///< Offset.
};

/// LayerNorm or RMSNorm over each head of a projection, one weight vector of head_dim for all heads
/// and no bias, and the rotation of what comes out. Keeps its statistics; input and output are the
/// caller's.
class HeadNormBlock {
 public:
  struct Options {
    kernels::NormKind kind = kernels::NormKind::layer;
    std::int64_t heads = 1;
    std::int64_t head_dim = 0;
    float eps = 1e-5F;
  };

  HeadNormBlock(const BlockContext& context, const std::string& name, const Options& options);

  /// With a residual x is its sum, written on the way.
  void forward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout, Elements y,
               kernels::RowLayout y_layout, const kernels::RowRotation& rotation = {},
               const kernels::NormResidual& residual = {}) const;
  /// Adds the gradient at x to dx, or writes it when not `accumulate` (dx may be dy then); both are
  /// laid out as x is.
  void backward(const BlockCall& call, ConstElements x, kernels::RowLayout x_layout,
                ConstElements dy, Elements dx, bool accumulate,
                const kernels::RowRotation& rotation = {}) const;

 private:
  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Options options_;
  std::int64_t weight_;  ///< Offset.
  Workspace::Slot mean_, rstd_;
};

/// The same norm over whole rows, which has its output.
class NormBlock {
 public:
  struct Options {
    kernels::NormKind kind = kernels::NormKind::layer;
    std::int64_t cols = 0;
    float eps = 1e-5F;
  };

  NormBlock(const BlockContext& context, const std::string& name, const Options& options);

  /// x, result: [rows, cols]. The result lasts until the next norm of the model at least.
  Elements forward(const BlockCall& call, ConstElements x,
                   const kernels::NormResidual& residual = {}) const;
  /// The same result in the backward pass.
  Elements output_again(const BlockCall& call, ConstElements x) const {
    return workspace_->lean() ? forward(call, x) : output();
  }
  [[nodiscard]] Elements output() const { return workspace_->at(output_); }
  [[nodiscard]] Workspace::Slot output_slot() const { return output_; }
  /// As HeadNormBlock's.
  void backward(const BlockCall& call, ConstElements x, ConstElements dy, Elements dx,
                bool accumulate) const {
    norm_.backward(call, x, layout_, dy, dx, accumulate);
  }

 private:
  Workspace* workspace_;
  kernels::RowLayout layout_;
  HeadNormBlock norm_;
  Workspace::Slot output_;
};

}  // namespace train::engine
