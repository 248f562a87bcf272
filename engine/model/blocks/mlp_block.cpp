#include "engine/model/blocks/mlp_block.hpp"

namespace train::engine {
namespace {

// The members are initialised in the order of the parameters: gate, up, down.
std::optional<LinearBlock> up_projection(const BlockContext& context,
                                         const MlpBlock::Options& options) {
  if (options.kind != MlpKind::swiglu) {
    return std::nullopt;
  }
  return LinearBlock(context, "up_proj", options.embedding_dim, options.hidden, InitKind::linear);
}

}  // namespace

MlpBlock::MlpBlock(const BlockContext& context, const Options& options)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      options_(options),
      in_(context, options.kind == MlpKind::swiglu ? "gate_proj" : "c_fc", options.embedding_dim,
          options.hidden, InitKind::linear),
      up_(up_projection(context, options)),
      out_(context, options.kind == MlpKind::swiglu ? "down_proj" : "c_proj", options.hidden,
           options.embedding_dim, InitKind::residual_output) {
  const std::int64_t count = workspace_->rows() * options.hidden;
  hidden_ = workspace_->keep(context.prefix, "hidden", count);
  if (up_) {
    up_hidden_ = workspace_->keep(context.prefix, "up_hidden", count);
    dhidden_ = workspace_->scratch_backward(Phase::block, "mlp dhidden", count);
  }
  activated_ = workspace_->scratch(Phase::block, "mlp activated",
                                   count);  // the backward pass writes it again
  dactivated_ = workspace_->scratch_backward(Phase::block, "mlp dactivated", count);
}

void MlpBlock::forward(const BlockCall& call, ConstElements x, Elements branch) const {
  forward_kept(call, x);
  const std::int64_t count = call.lane.rows() * options_.hidden;
  Elements hidden = workspace_->at(hidden_);
  Elements activated = workspace_->at(activated_);
  if (up_) {
    kernels_->swiglu_forward(call.stream, {.gate = hidden,
                                           .up = workspace_->at(up_hidden_),
                                           .y = activated,
                                           .count = count,
                                           .dtype = x.dtype});
  } else {
    kernels_->gelu_forward(call.stream,
                           {.x = hidden, .y = activated, .count = count, .dtype = x.dtype});
  }
  out_.forward(call, activated, branch, options_.embedding_dim);
}

void MlpBlock::forward_kept(const BlockCall& call, ConstElements x) const {
  in_.forward(call, x, workspace_->at(hidden_), options_.hidden);
  if (up_) {
    up_->forward(call, x, workspace_->at(up_hidden_), options_.hidden);
  }
}

void MlpBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                        Elements dx) const {
  const std::int64_t count = call.lane.rows() * options_.hidden;
  ConstElements hidden = workspace_->at(hidden_);
  Elements d = workspace_->at(dactivated_);
  Elements activated = workspace_->at(activated_);
  out_.backward_input(call, dbranch, options_.embedding_dim, d);
  if (!up_) {
    kernels_->gelu_backward(
        call.stream,
        {.x = hidden, .dy = d, .dx = d, .y = activated, .count = count, .dtype = x.dtype});
    out_.backward_weight(call, dbranch, options_.embedding_dim, activated);
    in_.backward_weight(call, d, options_.hidden, x);
    in_.backward_input(call, d, options_.hidden, dx);
    return;
  }
  Elements dgate = workspace_->at(dhidden_);
  kernels_->swiglu_backward(call.stream, {.gate = hidden,
                                          .up = workspace_->at(up_hidden_),
                                          .dy = d,
                                          .dgate = dgate,
                                          .dup = d,
                                          .y = activated,
                                          .count = count,
                                          .dtype = x.dtype});
  out_.backward_weight(call, dbranch, options_.embedding_dim, activated);
  in_.backward_weight(call, dgate, options_.hidden, x);
  up_->backward_weight(call, d, options_.hidden, x);
  in_.backward_input(call, dgate, options_.hidden, dx);
  up_->backward_input(call, d, options_.hidden, dx, /*accumulate=*/true);
}

}  // namespace train::engine
