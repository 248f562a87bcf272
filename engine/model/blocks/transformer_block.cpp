#include "engine/model/blocks/transformer_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/dtype.hpp"

namespace train::engine {
namespace {

/// "forward attention": a mark's name, which outlives the model, as traces and failures do.
const char* mark_name(std::string_view pass, std::string_view role) {
  static std::mutex mutex;
  static std::set<std::string> names;
  const std::lock_guard lock(mutex);
  return names.insert(fmt::format("{} {}", pass, role)).first->c_str();
}

}  // namespace

TransformerBlock::TransformerBlock(const kernels::KernelTable& kernels, Workspace& workspace,
                                   const ModelSpec& spec, const Options& options)
    : LayerUnit(fmt::format("block {}", options.index), kernels, workspace, spec),
      residual_scale_(spec.residual_scale),
      unit_(static_cast<std::int32_t>(options.index) + 1),
      parallel_(spec.layers.at(options.index).parallel),
      input_(options.input) {
  const LayerSpec& layer = spec.layers[options.index];
  TRAIN_CHECK(!layer.branches.empty(), "{} does nothing", name());
  TRAIN_CHECK(!parallel_ ||
                  (residual_scale_ == 1.0F &&
                   std::none_of(layer.branches.begin(), layer.branches.end(),
                                [](const BranchSpec& branch) { return branch.post.has_value(); })),
              "branches side by side come without norms behind them and without a factor");
  const BlockContext context{kernels, parameters_, workspace, spec.lora, layer.prefix};
  workspace.expand_again(options.checkpointing.expands_again(options.index));
  for (const BranchSpec& branch : layer.branches) {
    add_branch(context, spec, branch,
               workspace.has_backward() &&
                   options.checkpointing.computes_again(options.index, branch.block->role()));
  }
  reserve(workspace, layer.prefix);
}

void TransformerBlock::add_branch(const BlockContext& context, const ModelSpec& spec,
                                  const BranchSpec& branch, bool again) {
  context.workspace.begin_branch(branches_.size(), branch.block->role());
  context.workspace.recompute_kept(again);
  Branch& added = branches_.emplace_back();
  added.again = again;
  added.forward_mark = mark_name("forward", branch.block->role());
  added.backward_mark = mark_name("backward", branch.block->role());
  if (branch.pre) {
    added.pre.emplace(context, *branch.pre, spec.embedding_dim);
  }
  added.block = branch.block->make(context, spec);
  if (branch.post) {
    added.post.emplace(context, *branch.post, spec.embedding_dim);
  }
}

void TransformerBlock::reserve(Workspace& workspace, const std::string& prefix) {
  const std::int64_t count = workspace.rows() * embedding_dim_;
  branches_.front().sum = input_;
  for (std::size_t i = 1; i < branches_.size(); ++i) {
    workspace.begin_branch(i, {});
    workspace.recompute_kept(sum_again(i));
    branches_[i].sum =
        parallel_ ? workspace.scratch(Phase::block, "parallel sum", count)
                  : workspace.keep(fmt::format("{}middle {}.", prefix, i), "residual", count);
  }
  workspace.recompute_kept(false);
  output_ = workspace.keep_for_next(prefix, "residual", count);
  branch_ = workspace.scratch(Phase::block, "branch", count);
  norm_gradient_ = branch_;  // The backward pass needs no branch any more.
  residual_gradient_ = share_residual_gradient(workspace, embedding_dim_);
  if (residual_scale_ != 1.0F || parallel_) {
    scaled_gradient_ = workspace.scratch_backward(Phase::block, "scaled residual gradient", count);
  }
}

void TransformerBlock::mark(const BlockCall& call, const char* what) const {
  call.stream.mark({.what = what,
                    .step = call.lane.step,
                    .unit = unit_,
                    .lane = static_cast<std::int32_t>(call.lane.index)});
}

void TransformerBlock::add(const BlockCall& call, ConstElements x, ConstElements branch,
                           Elements out, float scale) const {
  kernels_->residual_add(call.stream, {.x = x,
                                       .branch = branch,
                                       .out = out,
                                       .scale = scale,
                                       .count = call.lane.rows() * embedding_dim_,
                                       .dtype = workspace_->dtype()});
}

ConstElements TransformerBlock::unnormed_input(const Branch& branch) const {
  return workspace_->at(parallel_ ? input_ : branch.sum);
}

ConstElements TransformerBlock::input(const BlockCall& call, const Branch& branch) const {
  const ConstElements x = unnormed_input(branch);
  return branch.pre ? branch.pre->forward(call, x) : x;
}

ConstElements TransformerBlock::input_again(const BlockCall& call, const Branch& branch) const {
  const ConstElements x = unnormed_input(branch);
  return branch.pre ? branch.pre->output_again(call, x) : x;
}

ConstElements TransformerBlock::add_and_enter(const BlockCall& call, std::size_t index) const {
  const Branch& branch = branches_[index];
  if (index == 0) {
    return input(call, branch);
  }
  const ConstElements before = workspace_->at(branches_[index - 1].sum);
  const ConstElements added = workspace_->at(branch_);
  const Elements sum = workspace_->at(branch.sum);
  if (branch.pre && !parallel_) {
    return branch.pre->forward(
        call, sum, {.base = before, .branch = added, .sum = sum, .scale = residual_scale_});
  }
  add(call, before, added, sum, residual_scale_);
  return input(call, branch);
}

void TransformerBlock::branch_output(const BlockCall& call, const Branch& branch) const {
  const Elements out = workspace_->at(branch_);
  branch.block->forward_output(call, branch.post ? branch.post->input() : out);
  if (branch.post) {
    branch.post->forward(call, out);
  }
}

void TransformerBlock::forward(kernels::Stream& stream, const UnitMemory& memory,
                               const Lane& lane) {
  const Lane seen = with_prefix(lane);
  const BlockCall call{stream, memory.weights, nullptr, seen};
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    mark(call, branches_[i].forward_mark);
    branches_[i].block->forward_kept(call, add_and_enter(call, i));
    branch_output(call, branches_[i]);
  }
  add(call, workspace_->at(branches_.back().sum), workspace_->at(branch_), workspace_->at(output_),
      residual_scale_);
}

bool TransformerBlock::sum_again(std::size_t index) const {
  return !parallel_ && index > 0 && index < branches_.size() && branches_[index - 1].again &&
         branches_[index].again;
}

void TransformerBlock::compute_again(const BlockCall& call) {
  for (std::size_t i = 0; i < branches_.size(); ++i) {
    const Branch& branch = branches_[i];
    if (branch.again) {
      mark(call, branch.backward_mark);
      branch.block->forward_kept(call, sum_again(i) ? add_and_enter(call, i) : input(call, branch));
      if (branch.post || sum_again(i + 1)) {
        branch_output(call, branch);
      }
    }
  }
}

ConstElements TransformerBlock::branch_gradient(const BlockCall& call) const {
  const ConstElements d = workspace_->at(residual_gradient_);
  if (residual_scale_ == 1.0F && !parallel_) {
    return d;
  }
  const Elements scaled = workspace_->at(scaled_gradient_);
  kernels_->scale(call.stream, {.x = d,
                                .y = scaled,
                                .scale = residual_scale_,
                                .count = call.lane.rows() * embedding_dim_,
                                .dtype = scaled.dtype});
  return scaled;
}

void TransformerBlock::branch_backward(const BlockCall& call, const Branch& branch,
                                       ConstElements gradient) const {
  mark(call, branch.backward_mark);
  const Elements d = workspace_->at(residual_gradient_);
  const Elements norm_gradient = workspace_->at(norm_gradient_);
  const ConstElements from =
      branch.post ? ConstElements(branch.post->backward(call, gradient)) : gradient;
  branch.block->backward(call, input_again(call, branch), from, norm_gradient);
  if (branch.pre) {
    branch.pre->backward(call, unnormed_input(branch), norm_gradient, d, /*accumulate=*/true);
  } else {
    add(call, d, norm_gradient, d, 1.0F);
  }
}

void TransformerBlock::backward(kernels::Stream& stream, const UnitMemory& memory,
                                const Lane& lane) {
  const Lane seen = with_prefix(lane);
  const BlockCall call{stream, memory.weights, memory.gradient, seen};
  compute_again({stream, memory.weights, memory.gradient, seen, /*again=*/true});
  // Side by side all start from the gradient as it came; in series from what those behind left.
  ConstElements gradient = branch_gradient(call);
  for (std::size_t i = branches_.size(); i > 0; --i) {
    branch_backward(call, branches_[i - 1], gradient);
    gradient = parallel_ || i == 1 ? gradient : branch_gradient(call);
  }
}

}  // namespace train::engine
