#include "engine/model/blocks/transformer_block.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "kernels/dtype.hpp"

namespace train::engine {

TransformerBlock::TransformerBlock(const kernels::KernelTable& kernels, Workspace& workspace,
                                   const ModelSpec& spec, const Options& options)
    : LayerUnit(fmt::format("block {}", options.index), kernels, workspace, spec),
      residual_scale_(spec.residual_scale),
      parallel_(spec.layers.at(options.index).parallel),
      input_(options.input),
      recompute_(workspace.has_backward() ? options.recompute : Recompute::nothing) {
  const LayerSpec& layer = spec.layers[options.index];
  TRAIN_CHECK(!parallel_ ||
                  (residual_scale_ == 1.0F && !layer.attention_norms.post && !layer.mlp_norms.post),
              "branches side by side come without norms behind them and without a factor");
  const BlockContext context{kernels, parameters_, workspace, spec.lora, layer.prefix};
  const auto pre = [&](const std::optional<NormSpec>& norm, std::optional<NormBlock>& block) {
    if (norm) {
      block.emplace(context, *norm, spec.embedding_dim);
    }
  };
  const auto post = [&](const std::optional<NormSpec>& norm, std::optional<PostNormBlock>& block) {
    if (norm) {
      block.emplace(context, *norm, spec.embedding_dim);
    }
  };
  workspace.recompute_kept(attention_again());
  pre(layer.attention_norms.pre, ln_1_);
  attention_.emplace(context, layer.attention, spec);
  post(layer.attention_norms.post, post_1_);
  workspace.recompute_kept(mlp_again());
  pre(layer.mlp_norms.pre, ln_2_);
  mlp_.emplace(context, layer.mlp, spec);
  post(layer.mlp_norms.post, post_2_);
  reserve(workspace, layer.prefix);
}

void TransformerBlock::reserve(Workspace& workspace, const std::string& prefix) {
  const std::int64_t count = workspace.rows() * embedding_dim_;
  if (parallel_) {
    middle_ = workspace.scratch(Phase::block, "parallel sum", count);
  } else {
    workspace.recompute_kept(recompute_ == Recompute::block);
    middle_ = workspace.keep(prefix + "middle.", "residual", count);
  }
  workspace.recompute_kept(false);
  output_ = workspace.keep_for_next(prefix, "residual", count);
  branch_ = workspace.scratch(Phase::block, "branch", count);
  norm_gradient_ = branch_;  // Of a backward pass, which needs no branch any more.
  residual_gradient_ = share_residual_gradient(workspace, embedding_dim_);
  if (residual_scale_ != 1.0F || parallel_) {
    scaled_gradient_ = workspace.scratch_backward(Phase::block, "scaled residual gradient", count);
  }
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

ConstElements TransformerBlock::attention_input(const BlockCall& call) const {
  const ConstElements input = workspace_->at(input_);
  return ln_1_ ? ln_1_->forward(call, input) : input;
}

ConstElements TransformerBlock::attention_input_again(const BlockCall& call) const {
  const ConstElements input = workspace_->at(input_);
  return ln_1_ ? ln_1_->output_again(call, input) : input;
}

ConstElements TransformerBlock::mlp_input_again(const BlockCall& call) const {
  const ConstElements x = workspace_->at(parallel_ ? input_ : middle_);
  return ln_2_ ? ln_2_->output_again(call, x) : x;
}

void TransformerBlock::attention_output(const BlockCall& call) const {
  const Elements branch = workspace_->at(branch_);
  attention_->forward_output(call, post_1_ ? post_1_->input() : branch);
  if (post_1_) {
    post_1_->forward(call, branch);
  }
}

void TransformerBlock::mlp_output(const BlockCall& call) const {
  const Elements branch = workspace_->at(branch_);
  mlp_->forward_output(call, post_2_ ? post_2_->input() : branch);
  if (post_2_) {
    post_2_->forward(call, branch);
  }
}

ConstElements TransformerBlock::add_attention(const BlockCall& call) const {
  const ConstElements input = workspace_->at(input_);
  const ConstElements branch = workspace_->at(branch_);
  const Elements middle = workspace_->at(middle_);
  if (ln_2_ && !parallel_) {
    return ln_2_->forward(
        call, middle, {.base = input, .branch = branch, .sum = middle, .scale = residual_scale_});
  }
  add(call, input, branch, middle, residual_scale_);
  return ln_2_ ? ConstElements(ln_2_->forward(call, input)) : ConstElements(middle);
}

void TransformerBlock::forward(kernels::Stream& stream, const UnitMemory& memory,
                               const Lane& lane) {
  const BlockCall call{stream, memory.weights, nullptr, lane};
  attention_->forward_kept(call, attention_input(call));
  attention_output(call);
  mlp_->forward_kept(call, add_attention(call));
  mlp_output(call);
  add(call, workspace_->at(middle_), workspace_->at(branch_), workspace_->at(output_),
      residual_scale_);
}

bool TransformerBlock::attention_again() const {
  return recompute_ == Recompute::attention || recompute_ == Recompute::block;
}

bool TransformerBlock::mlp_again() const {
  return recompute_ == Recompute::mlp || recompute_ == Recompute::block;
}

void TransformerBlock::compute_again(const BlockCall& call) {
  if (attention_again()) {
    attention_->forward_kept(call, attention_input(call));
    if (post_1_ || recompute_ == Recompute::block) {
      attention_output(call);
    }
  }
  if (!mlp_again()) {
    return;
  }
  if (recompute_ == Recompute::block) {
    mlp_->forward_kept(call, add_attention(call));
  } else {  // the sum of input and attention has been kept
    const ConstElements x = workspace_->at(parallel_ ? input_ : middle_);
    mlp_->forward_kept(call, ln_2_ ? ConstElements(ln_2_->forward(call, x)) : x);
  }
  if (post_2_) {
    mlp_output(call);
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

void TransformerBlock::mlp_backward(const BlockCall& call, ConstElements gradient) const {
  const Elements d = workspace_->at(residual_gradient_);
  const Elements norm_gradient = workspace_->at(norm_gradient_);
  const ConstElements from = post_2_ ? ConstElements(post_2_->backward(call, gradient)) : gradient;
  mlp_->backward(call, mlp_input_again(call), from, norm_gradient);
  if (ln_2_) {
    ln_2_->backward(call, workspace_->at(parallel_ ? input_ : middle_), norm_gradient, d,
                    /*accumulate=*/true);
  } else {
    add(call, d, norm_gradient, d, 1.0F);
  }
}

void TransformerBlock::attention_backward(const BlockCall& call, ConstElements gradient) {
  const Elements d = workspace_->at(residual_gradient_);
  const Elements norm_gradient = workspace_->at(norm_gradient_);
  const ConstElements from = post_1_ ? ConstElements(post_1_->backward(call, gradient)) : gradient;
  attention_->backward(call, attention_input_again(call), from, norm_gradient);
  if (ln_1_) {
    ln_1_->backward(call, workspace_->at(input_), norm_gradient, d, /*accumulate=*/true);
  } else {
    add(call, d, norm_gradient, d, 1.0F);
  }
}

void TransformerBlock::backward(kernels::Stream& stream, const UnitMemory& memory,
                                const Lane& lane) {
  const BlockCall call{stream, memory.weights, memory.gradient, lane};
  compute_again(call);
  const ConstElements gradient = branch_gradient(call);
  mlp_backward(call, gradient);
  // Side by side both start from the gradient as it came; in series from what the MLP has left.
  attention_backward(call, parallel_ ? gradient : branch_gradient(call));
}

}  // namespace train::engine
