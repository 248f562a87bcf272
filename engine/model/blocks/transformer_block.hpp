#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/workspace.hpp"

namespace train::engine {

/// One layer of a ModelSpec: its blocks, each between its norms:
///   serial:    x = x + c post(f(pre(x))), of one branch after the other;
///   parallel:  x = x + f(pre(x)) + g(pre'(x)) + ...
class TransformerBlock final : public LayerUnit {
 public:
  struct Options {
    std::size_t index = 0;      ///< Place among the layers, from 0.
    Workspace::Slot input = 0;  ///< Output slot of the unit before.
    Checkpointing checkpointing = {};
  };
  TransformerBlock(const kernels::KernelTable& kernels, Workspace& workspace, const ModelSpec& spec,
                   const Options& options);

  void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;
  void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;

 private:
  struct Branch {
    std::optional<NormBlock> pre;
    std::unique_ptr<Block> block;
    std::optional<PostNormBlock> post;
    bool again = false;  ///< The backward pass recomputes it.
    /// Names of its work in profiles and statuses: "forward attention".
    const char *forward_mark = nullptr, *backward_mark = nullptr;
    Workspace::Slot sum = 0;  ///< The residual stream in front of it.
  };

  void add_branch(const BlockContext& context, const ModelSpec& spec, const BranchSpec& branch,
                  bool again);
  void reserve(Workspace& workspace, const std::string& prefix);
  /// Labels the work that follows.
  void mark(const BlockCall& call, const char* what) const;
  /// True if the backward pass recomputes the sum in front of the branch.
  [[nodiscard]] bool sum_again(std::size_t index) const;
  /// Recomputes, before the backward pass, the activations that it needs and that were not kept.
  void compute_again(const BlockCall& call);
  /// The input of the branch, before its norm and behind it.
  [[nodiscard]] ConstElements unnormed_input(const Branch& branch) const;
  [[nodiscard]] ConstElements input(const BlockCall& call, const Branch& branch) const;
  [[nodiscard]] ConstElements input_again(const BlockCall& call, const Branch& branch) const;
  /// sum = the sum before + c * the branch before, and what the branch reads then.
  ConstElements add_and_enter(const BlockCall& call, std::size_t index) const;
  void add(const BlockCall& call, ConstElements x, ConstElements branch, Elements out,
           float scale) const;
  /// From what the block's kept buffers hold: the branch, normed where it is.
  void branch_output(const BlockCall& call, const Branch& branch) const;
  void branch_backward(const BlockCall& call, const Branch& branch, ConstElements gradient) const;
  /// c * residual gradient: what the branches' backward passes start from.
  [[nodiscard]] ConstElements branch_gradient(const BlockCall& call) const;

  float residual_scale_;
  std::int32_t unit_;
  bool parallel_;
  std::vector<Branch> branches_;
  Workspace::Slot input_, branch_ = 0;
  Workspace::Slot residual_gradient_ = 0, scaled_gradient_ = 0, norm_gradient_ = 0;
};

}  // namespace train::engine
