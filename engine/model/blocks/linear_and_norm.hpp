#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/model/blocks/adapter_block.hpp"
#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_products.hpp"
#include "engine/model/spec.hpp"
#include "kernels/row_layout.hpp"

namespace train::engine {

/// y = x W^T (+ b) (+ what an adapter adds); W is [outputs, inputs] as in torch, or [inputs,
/// outputs] where `transposed`. Keeps nothing: the caller owns x. `y_stride`, `dy_stride`: elements
/// between rows, so several layers can write one wide buffer.
class LinearBlock {
 public:
  struct Options {
    std::int64_t inputs = 0, outputs = 0;
    Initializer init = InitKind::linear;
    bool bias = false;
    bool transposed = false;
    bool bias_later = false;  ///< add_bias() adds the bias, not the constructor.
    bool router = false;      ///< Neither Muon's, nor adapted unless it is named.
  };
  LinearBlock(const BlockContext& context, const std::string& name, const Options& options);
  /// Combines layers of one input to a single one with adjacent outputs; it adds no parameters and
  /// borrows no memory. None if their weights, biases or the gradients of those are not contiguous
  /// in memory (biases are then added later, in their place), or if a layer has an adapter.
  [[nodiscard]] static std::optional<LinearBlock> side_by_side(std::span<const LinearBlock> layers);

  /// Adds the bias that comes later: before anything is computed. REQUIRES: Options::bias_later.
  void add_bias(const BlockContext& context, const std::string& name);

  [[nodiscard]] std::int64_t outputs() const { return options_.outputs; }

  void forward(const BlockCall& call, ConstElements x, Elements y, std::int64_t y_stride) const;
  /// Starts a backward pass; before the other two.
  void begin_backward(const BlockCall& call, ConstElements dy, std::int64_t dy_stride) const;
  /// dx (+)= dy W.
  void backward_input(const BlockCall& call, ConstElements dy, std::int64_t dy_stride, Elements dx,
                      bool accumulate = false) const;
  /// dW = dy^T x and db = sum of dy, overwritten; neither of what is frozen.
  void backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                       ConstElements x) const;

  /// y = x P^T and y = x P, P the rows of W (and of what an adapter adds) for a part of the
  /// outputs. REQUIRES: neither bias nor `transposed`.
  void part_forward(const BlockCall& call, const LinearPart& part, ConstElements x,
                    Elements y) const;
  void part_input(const BlockCall& call, const LinearPart& part, ConstElements x, Elements y) const;

 private:
  [[nodiscard]] LinearSizes sizes(const BlockCall& call) const {
    return {call.lane.rows(), options_.inputs, options_.outputs, options_.transposed};
  }

  const kernels::KernelTable* kernels_;
  Options options_;
  ParameterPlace weight_;
  ParameterPlace bias_;
  std::optional<AdapterBlock> adapter_;
};

/// A norm over each head of a projection, one weight vector of head_dim for all heads, and the
/// rotation of what comes out. Keeps its statistics; input and output are the caller's.
class HeadNormBlock {
 public:
  struct Options {
    kernels::NormKind kind = kernels::NormKind::layer;
    std::int64_t heads = 1;
    std::int64_t head_dim = 0;
    float eps = 1e-5F;
    bool plus_one = false;
    bool bias = false;  ///< REQUIRES: heads of 1, no rotation, a layout without gaps.
  };

  HeadNormBlock(const BlockContext& context, const std::string& name, const Options& options);

  /// With a residual, x is the residual's sum, which this call writes.
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
  ParameterPlace weight_;
  ParameterPlace bias_;
  Workspace::Slot mean_, rstd_;
};

/// Options of a norm over whole rows.
[[nodiscard]] HeadNormBlock::Options row_norm(const NormSpec& spec, std::int64_t cols);

/// Norm over whole rows that owns the slot of its output.
class NormBlock {
 public:
  /// `phase`: phase of the scratch slot that holds a result that is not kept.
  NormBlock(const BlockContext& context, const NormSpec& spec, std::int64_t cols,
            Phase phase = Phase::block);

  /// x, result: [rows, cols]. The result lasts until the next norm of the model at least.
  Elements forward(const BlockCall& call, ConstElements x,
                   const kernels::NormResidual& residual = {}) const;
  /// Result of forward() in the backward pass, recomputed if the workspace is lean.
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

/// A norm of what a branch gives, before it is added: keeps its input, which the branch writes.
class PostNormBlock {
 public:
  PostNormBlock(const BlockContext& context, const NormSpec& spec, std::int64_t cols);

  /// Input of the norm, which the branch writes.
  [[nodiscard]] Elements input() const { return workspace_->at(input_); }
  void forward(const BlockCall& call, Elements y) const;
  /// The gradient at the branch, in a buffer of this block; dy stays.
  Elements backward(const BlockCall& call, ConstElements dy) const;

 private:
  Workspace* workspace_;
  kernels::RowLayout layout_;
  Workspace::Slot input_;
  HeadNormBlock norm_;
  Workspace::Slot gradient_;
};

}  // namespace train::engine
