#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/workspace.hpp"

namespace train::engine {

/// One layer of a ModelSpec, f being attention and mlp, each between its norms:
///   serial:    x = x + c post(f(pre(x))), attention first, then the MLP;
///   parallel:  x = x + attention(pre(x)) + mlp(pre'(x)).
class TransformerBlock final : public LayerUnit {
 public:
  struct Options {
    std::size_t index = 0;      ///< Place among the layers, from 0.
    Workspace::Slot input = 0;  ///< Output slot of the unit before.
    Recompute recompute = Recompute::nothing;
  };
  TransformerBlock(const kernels::KernelTable& kernels, Workspace& workspace, const ModelSpec& spec,
                   const Options& options);

  void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;
  void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;

 private:
  void reserve(Workspace& workspace, const std::string& prefix);
  [[nodiscard]] bool attention_again() const;
  [[nodiscard]] bool mlp_again() const;
  /// Before the backward pass: what it needs and was not kept.
  void compute_again(const BlockCall& call);
  /// What attention reads, and the MLP; the former's norm, where it has one, computed by `norm`.
  [[nodiscard]] ConstElements attention_input(const BlockCall& call) const;
  [[nodiscard]] ConstElements attention_input_again(const BlockCall& call) const;
  [[nodiscard]] ConstElements mlp_input_again(const BlockCall& call) const;
  /// middle = input + c * branch, and what the MLP reads of it.
  ConstElements add_attention(const BlockCall& call) const;
  void add(const BlockCall& call, ConstElements x, ConstElements branch, Elements out,
           float scale) const;
  /// From what the attention's kept buffers hold: its branch, normed where it is.
  void attention_output(const BlockCall& call) const;
  void mlp_output(const BlockCall& call) const;
  void mlp_backward(const BlockCall& call, ConstElements gradient) const;
  void attention_backward(const BlockCall& call, ConstElements gradient);
  /// c * residual gradient: what the branches' backward passes start from.
  [[nodiscard]] ConstElements branch_gradient(const BlockCall& call) const;

  float residual_scale_;
  bool parallel_;
  Workspace::Slot input_;
  Recompute recompute_;
  // Optional also because they need the members of the base to be built.
  std::optional<NormBlock> ln_1_, ln_2_;
  std::optional<PostNormBlock> post_1_, post_2_;
  std::optional<AttentionBlock> attention_;
  std::optional<MlpBlock> mlp_;
  Workspace::Slot middle_ = 0, branch_ = 0;
  Workspace::Slot residual_gradient_ = 0, scaled_gradient_ = 0, norm_gradient_ = 0;
};

}  // namespace train::engine
