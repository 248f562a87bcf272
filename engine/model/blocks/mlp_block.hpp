#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// The MLP of a layer, MlpSpec's forms. Keeps what the activation is applied to; the backward pass
/// computes the rest again on its way.
class MlpBlock {
 public:
  MlpBlock(const BlockContext& context, const MlpSpec& spec, const ModelSpec& model);

  /// x: [rows, embedding_dim]. Writes the branch (before the residual factor) to `branch`.
  void forward(const BlockCall& call, ConstElements x, Elements branch) const;
  /// forward() in two parts: all that the backward pass needs, and from that the branch.
  void forward_kept(const BlockCall& call, ConstElements x) const;
  void forward_output(const BlockCall& call, Elements branch) const;
  /// dbranch, dx: [rows, embedding_dim]; dx is overwritten. x as in forward().
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch, Elements dx) const;

 private:
  void activate(const BlockCall& call) const;
  /// From what `activated_` holds, its gradient: its contents again, and in the place of what the
  /// activation is applied to, which nobody needs after that, the gradient of it.
  void activate_backward(const BlockCall& call) const;
  /// Of the buffers of `in_` and of its gradient.
  [[nodiscard]] std::int64_t stride() const {
    return spec_.fused || both_ ? 2 * spec_.hidden : spec_.hidden;
  }
  [[nodiscard]] Elements up_hidden() const;
  /// Whole buffers of the two oldest activations have kernels of their own.
  [[nodiscard]] bool is_swiglu() const;
  [[nodiscard]] bool is_gelu() const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  MlpSpec spec_;
  std::int64_t embedding_dim_;
  LinearBlock in_;                 ///< Its output is the gate's where there is one.
  std::optional<LinearBlock> up_;  ///< Gated and not fused.
  /// Both in one product, on devices alone: to add up the two gradients of their input within it
  /// rounds once where two products round twice, and the CPU's bits are those of two.
  std::optional<LinearBlock> both_;
  LinearBlock out_;
  Workspace::Slot hidden_ = 0, up_hidden_ = 0, activated_ = 0;
};

}  // namespace train::engine
