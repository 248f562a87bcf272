#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"

namespace train::engine {

enum class MlpKind : std::uint8_t {
  gelu,    ///< c_proj(gelu(c_fc x)), exact (erf) GELU.
  swiglu,  ///< down_proj(silu(gate_proj x) * up_proj x).
};

/// The MLP of a transformer block, without biases. Keeps what the activation is applied to; the
/// backward pass computes the rest again on its way.
class MlpBlock {
 public:
  struct Options {
    MlpKind kind = MlpKind::gelu;
    std::int64_t embedding_dim = 0;
    std::int64_t hidden = 0;
  };
  MlpBlock(const BlockContext& context, const Options& options);

  /// x: [rows, embedding_dim]. Writes the branch (before the residual factor) to `branch`.
  void forward(const BlockCall& call, ConstElements x, Elements branch) const;
  /// The part of forward() that the backward pass needs.
  void forward_kept(const BlockCall& call, ConstElements x) const;
  /// dbranch, dx: [rows, embedding_dim]; dx is overwritten. x as in forward().
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch, Elements dx) const;

 private:
  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Options options_;
  LinearBlock in_;                 ///< c_fc or gate_proj.
  std::optional<LinearBlock> up_;  ///< swiglu only.
  LinearBlock out_;
  Workspace::Slot hidden_ = 0, up_hidden_ = 0, activated_ = 0, dactivated_ = 0, dhidden_ = 0;
};

}  // namespace train::engine
