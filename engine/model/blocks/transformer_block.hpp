#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/model/workspace.hpp"

namespace train::engine {

/// One pre-norm block: x = x + c * attention(ln_1 x); x = x + c * mlp(ln_2 x).
class TransformerBlock final : public LayerUnit {
 public:
  struct Options {
    std::int64_t index = 0;     ///< Place among the blocks, from 0.
    Workspace::Slot input = 0;  ///< Output slot of the unit before.
    Recompute recompute = Recompute::nothing;
  };
  TransformerBlock(const kernels::KernelTable& kernels, Workspace& workspace,
                   const ModelShape& shape, const Options& options);

  void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;
  void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;

 private:
  [[nodiscard]] bool attention_again() const;
  [[nodiscard]] bool mlp_again() const;
  /// Before the backward pass: what it needs and was not kept.
  void compute_again(const BlockCall& call);
  /// c * residual gradient: what the branches' backward passes start from.
  [[nodiscard]] ConstElements branch_gradient(kernels::Stream& stream, const Lane& lane) const;

  float residual_scale_;
  Workspace::Slot input_;
  Recompute recompute_;
  // Optional only because they need the members of the base to be built.
  std::optional<NormBlock> ln_1_, ln_2_;
  std::optional<AttentionBlock> attention_;
  std::optional<MlpBlock> mlp_;
  Workspace::Slot middle_ = 0, branch_ = 0;
  Workspace::Slot residual_gradient_ = 0, scaled_gradient_ = 0, norm_gradient_ = 0;
};

/// Which norm an architecture uses everywhere.
[[nodiscard]] kernels::NormKind norm_kind(Architecture architecture);

}  // namespace train::engine
