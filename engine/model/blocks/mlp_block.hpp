#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/spec.hpp"
#include "kernels/kinds.hpp"

namespace train::engine {

/// out(act(in x)), or out(act(gate x) * up x).
struct MlpSpec final : BlockSpec {
  std::int64_t hidden = 0;
  kernels::ActivationKind activation = kernels::ActivationKind::silu;
  bool gated = false;
  bool fused = false;  ///< gated: one matrix, rows [gate | up].
  bool bias = false;
  std::string in = {};  ///< gated: gate's, or that of the fused matrix.
  std::string up = {};
  std::string out = {};

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "mlp"; }
  [[nodiscard]] std::string_view title() const override { return "MLP"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;
};

/// The MLP of a layer, MlpSpec's forms. Keeps what the activation is applied to; the backward pass
/// computes the rest again on its way.
class MlpBlock final : public Block {
 public:
  MlpBlock(const BlockContext& context, const MlpSpec& spec, const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  void activate(const BlockCall& call) const;
  /// Reads the gradient of `activated_` in its slot; restores the contents of `activated_`, and
  /// overwrites the activation's input, which is not needed any more, with its gradient.
  void activate_backward(const BlockCall& call) const;
  /// Row stride of the buffers of `in_` and of its gradient.
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
  LinearBlock in_;                 ///< Outputs the gate where there is one.
  std::optional<LinearBlock> up_;  ///< Gated and not fused.
  /// Gate and up in one product, if the device combines products whose results are added: the
  /// gradients of their input are.
  std::optional<LinearBlock> both_;
  LinearBlock out_;
  Workspace::Slot hidden_ = 0, up_hidden_ = 0, activated_ = 0;
};

}  // namespace train::engine
