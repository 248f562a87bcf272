#include "engine/model/blocks/transformer_block.hpp"

#include <fmt/format.h>

#include "kernels/dtype.hpp"

namespace train::engine {

kernels::NormKind norm_kind(Architecture architecture) {
  return architecture == Architecture::qwen3 ? kernels::NormKind::rms : kernels::NormKind::layer;
}

TransformerBlock::TransformerBlock(const kernels::KernelTable& kernels, Workspace& workspace,
                                   const ModelShape& shape, const Options& options)
    : LayerUnit(fmt::format("block {}", options.index), kernels, workspace, shape.embedding_dim),
      residual_scale_(shape.residual_scale),
      input_(options.input),
      recompute_(workspace.with_gradient() ? options.recompute : Recompute::nothing) {
  const bool qwen3 = shape.architecture == Architecture::qwen3;
  const BlockContext context{kernels, parameters_, workspace,
                             fmt::format("transformer.h.{}.", options.index)};
  workspace.recompute_kept(attention_again());
  const NormBlock::Options norm{norm_kind(shape.architecture), shape.embedding_dim, shape.norm_eps};
  ln_1_.emplace(context, "ln_1", norm);
  attention_.emplace(context.within("attn."), AttentionOptions{.embedding_dim = shape.embedding_dim,
                                                               .heads = shape.heads,
                                                               .head_dim = shape.head_dim,
                                                               .norm = norm.kind,
                                                               .norm_eps = shape.norm_eps,
                                                               .rope_theta = shape.rope_theta,
                                                               .qk_norm = shape.qk_norm,
                                                               .output_gate = shape.output_gate,
                                                               .fused_projection = !qwen3});
  workspace.recompute_kept(mlp_again());
  ln_2_.emplace(context, "ln_2", norm);
  mlp_.emplace(context.within("mlp."), MlpBlock::Options{qwen3 ? MlpKind::swiglu : MlpKind::gelu,
                                                         shape.embedding_dim, shape.mlp_hidden});

  const std::int64_t count = workspace.rows() * shape.embedding_dim;
  workspace.recompute_kept(recompute_ == Recompute::block);
  middle_ = workspace.keep(context.prefix + "middle.", "residual", count);
  workspace.recompute_kept(false);
  output_ = workspace.keep(context.prefix, "residual", count);
  branch_ = workspace.scratch(Phase::block, "branch", count);
  residual_gradient_ = share_residual_gradient(workspace, shape.embedding_dim);
  if (shape.residual_scale != 1.0F) {
    scaled_gradient_ = workspace.scratch_backward(Phase::block, "scaled residual gradient", count);
  }
  norm_gradient_ = workspace.scratch_backward(Phase::block, "norm gradient", count);
}

void TransformerBlock::forward(kernels::Stream& stream, const UnitMemory& memory,
                               const Lane& lane) {
  const BlockCall call{stream, memory.weights, nullptr, lane};
  const ConstElements input = workspace_->at(input_);
  const Elements middle = workspace_->at(middle_);
  const Elements branch = workspace_->at(branch_);
  attention_->forward(call, ln_1_->forward(call, input), branch);
  const ConstElements normed = ln_2_->forward(
      call, middle, {.base = input, .branch = branch, .sum = middle, .scale = residual_scale_});
  mlp_->forward(call, normed, branch);
  kernels_->residual_add(stream, {.x = middle,
                                  .branch = branch,
                                  .out = workspace_->at(output_),
                                  .scale = residual_scale_,
                                  .count = lane.rows() * embedding_dim_,
                                  .dtype = workspace_->dtype()});
}

bool TransformerBlock::attention_again() const {
  return recompute_ == Recompute::attention || recompute_ == Recompute::block;
}

bool TransformerBlock::mlp_again() const {
  return recompute_ == Recompute::mlp || recompute_ == Recompute::block;
}

void TransformerBlock::compute_again(const BlockCall& call) {
  const ConstElements input = workspace_->at(input_);
  const Elements middle = workspace_->at(middle_);
  if (attention_again()) {
    attention_->forward_kept(call, ln_1_->forward(call, input));
  }
  if (recompute_ == Recompute::block) {  // else the sum of input and attention has been kept
    const Elements branch = workspace_->at(branch_);
    attention_->forward_output(call, branch);
    mlp_->forward_kept(
        call,
        ln_2_->forward(call, middle,
                       {.base = input, .branch = branch, .sum = middle, .scale = residual_scale_}));
  } else if (recompute_ == Recompute::mlp) {
    mlp_->forward_kept(call, ln_2_->forward(call, middle));
  }
}

ConstElements TransformerBlock::branch_gradient(kernels::Stream& stream, const Lane& lane) const {
  const ConstElements d = workspace_->at(residual_gradient_);
  if (residual_scale_ == 1.0F) {
    return d;
  }
  const std::int64_t count = lane.rows() * embedding_dim_;
  const Elements scaled = workspace_->at(scaled_gradient_);
  // Zeros of either type have the same bits; slots have room for whole floats.
  const auto zeros = kernels::divide_up(count * static_cast<std::int64_t>(size_of(scaled.dtype)),
                                        std::int64_t{sizeof(float)});
  kernels_->fill(stream, {.out = reinterpret_cast<float*>(scaled.data), .count = zeros});
  kernels_->residual_add(stream, {.x = scaled,
                                  .branch = d,
                                  .out = scaled,
                                  .scale = residual_scale_,
                                  .count = count,
                                  .dtype = scaled.dtype});
  return scaled;
}

void TransformerBlock::backward(kernels::Stream& stream, const UnitMemory& memory,
                                const Lane& lane) {
  const BlockCall call{stream, memory.weights, memory.gradient, lane};
  compute_again(call);
  const Elements d = workspace_->at(residual_gradient_);
  const Elements norm_gradient = workspace_->at(norm_gradient_);
  const ConstElements input = workspace_->at(input_);
  const ConstElements middle = workspace_->at(middle_);
  mlp_->backward(call, ln_2_->output_again(call, middle), branch_gradient(stream, lane),
                 norm_gradient);
  ln_2_->backward(call, middle, norm_gradient, d, /*accumulate=*/true);
  attention_->backward(call, ln_1_->output_again(call, input), branch_gradient(stream, lane),
                       norm_gradient);
  ln_1_->backward(call, input, norm_gradient, d, /*accumulate=*/true);
}

}  // namespace train::engine
