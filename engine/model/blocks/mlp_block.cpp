#include "engine/model/blocks/mlp_block.hpp"

#include <fmt/format.h>

#include <array>

#include "kernels/activation/activation.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

using kernels::ActivationKind;

LinearBlock::Options into_hidden(const MlpSpec& spec, const ModelSpec& model) {
  return {.inputs = model.embedding_dim,
          .outputs = spec.fused ? 2 * spec.hidden : spec.hidden,
          .init = InitKind::linear,
          .bias = spec.bias,
          .transposed = model.transposed_linears};
}

// The members are initialised in the order of the parameters: gate, up, down.
std::optional<LinearBlock> up_projection(const BlockContext& context, const MlpSpec& spec,
                                         const ModelSpec& model) {
  if (!spec.gated || spec.fused) {
    return std::nullopt;
  }
  return LinearBlock(context, spec.up, into_hidden(spec, model));
}

}  // namespace

std::unique_ptr<Block> MlpSpec::make(const BlockContext& context, const ModelSpec& model) const {
  return std::make_unique<MlpBlock>(context, *this, model);
}

std::string MlpSpec::sizes() const { return fmt::format("MLP {}", hidden); }

std::string MlpSpec::describe() const {
  static constexpr const char* kNames[] = {"silu", "gelu", "gelu_tanh", "relu"};
  return fmt::format("{}{} of {}{}{}", kNames[static_cast<std::size_t>(activation)],
                     gated ? "-gated MLP" : " MLP", hidden, bias ? ", biases" : "",
                     fused ? ", one matrix for gate and up" : "");
}

std::vector<TensorRule> MlpSpec::tensor_rules(const ModelSpec& model, const BranchSpec& branch,
                                              Dialect dialect) const {
  std::vector<TensorRule> rules;
  if (dialect == Dialect::gguf) {
    const TensorOrder linear =
        model.transposed_linears ? TensorOrder::transposed : TensorOrder::same;
    rules = {{in, gated && !fused ? "ffn_gate" : "ffn_up", linear},
             {up, "ffn_up", linear},
             {out, "ffn_down", linear}};
    add_norm_rules(branch, {model.gguf_mlp_norm, "post_ffw_norm"}, rules);
  }
  return rules;
}

MlpBlock::MlpBlock(const BlockContext& context, const MlpSpec& spec, const ModelSpec& model)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      embedding_dim_(model.embedding_dim),
      in_(context, spec.in, into_hidden(spec, model)),
      up_(up_projection(context, spec, model)),
      both_(up_ && context.kernels.device->joins_products
                ? LinearBlock::side_by_side(std::array{in_, *up_})
                : std::nullopt),
      out_(context, spec.out,
           {.inputs = spec.hidden,
            .outputs = model.embedding_dim,
            .init = InitKind::residual_output,
            .bias = spec.bias,
            .transposed = model.transposed_linears}) {
  const std::int64_t count = workspace_->rows() * spec.hidden;
  hidden_ = workspace_->keep(context.prefix, "hidden", workspace_->rows() * stride());
  if (up_ && !both_) {
    up_hidden_ = workspace_->keep(context.prefix, "up_hidden", count);
  }
  activated_ = workspace_->scratch(Phase::branch, "activated", count);
}

bool MlpBlock::is_swiglu() const {
  return up_ && !both_ && spec_.activation == ActivationKind::silu;
}

bool MlpBlock::is_gelu() const { return !spec_.gated && spec_.activation == ActivationKind::gelu; }

Elements MlpBlock::up_hidden() const {
  if (!spec_.gated) {
    return nullptr;
  }
  return up_ && !both_ ? workspace_->at(up_hidden_) : workspace_->at(hidden_) + spec_.hidden;
}

void MlpBlock::activate(const BlockCall& call) const {
  const std::int64_t rows = call.lane.rows();
  const Elements hidden = workspace_->at(hidden_);
  const Elements activated = workspace_->at(activated_);
  const std::int64_t count = rows * spec_.hidden;
  if (is_swiglu()) {
    kernels_->swiglu_forward(
        call.stream,
        {.gate = hidden, .up = up_hidden(), .y = activated, .count = count, .dtype = hidden.dtype});
  } else if (is_gelu()) {
    kernels_->gelu_forward(call.stream,
                           {.x = hidden, .y = activated, .count = count, .dtype = hidden.dtype});
  } else {
    kernels_->activation_forward(call.stream, {.kind = spec_.activation,
                                               .x = hidden,
                                               .up = up_hidden(),
                                               .y = activated,
                                               .rows = rows,
                                               .cols = spec_.hidden,
                                               .x_stride = stride(),
                                               .y_stride = spec_.hidden,
                                               .dtype = hidden.dtype});
  }
}

void MlpBlock::forward_kept(const BlockCall& call, ConstElements x) {
  if (both_) {
    both_->forward(call, x, workspace_->at(hidden_), stride());
    return;
  }
  in_.forward(call, x, workspace_->at(hidden_), stride());
  if (up_) {
    up_->forward(call, x, workspace_->at(up_hidden_), spec_.hidden);
  }
}

void MlpBlock::forward_output(const BlockCall& call, Elements branch) {
  activate(call);
  out_.forward(call, workspace_->at(activated_), branch, embedding_dim_);
}

void MlpBlock::activate_backward(const BlockCall& call) const {
  const std::int64_t rows = call.lane.rows();
  const Elements hidden = workspace_->at(hidden_);
  const Elements activated = workspace_->at(activated_);
  const std::int64_t count = rows * spec_.hidden;
  if (is_gelu()) {
    kernels_->gelu_backward(call.stream, {.x = hidden,
                                          .dy = activated,
                                          .dx = hidden,
                                          .y = activated,
                                          .count = count,
                                          .dtype = hidden.dtype});
    return;
  }
  if (is_swiglu()) {
    kernels_->swiglu_backward(call.stream, {.gate = hidden,
                                            .up = up_hidden(),
                                            .dy = activated,
                                            .dgate = hidden,
                                            .dup = up_hidden(),
                                            .y = activated,
                                            .count = count,
                                            .dtype = hidden.dtype});
    return;
  }
  kernels_->activation_backward(call.stream, {.kind = spec_.activation,
                                              .x = hidden,
                                              .up = up_hidden(),
                                              .dy = activated,
                                              .dx = hidden,
                                              .dup = up_hidden(),
                                              .y = activated,
                                              .rows = rows,
                                              .cols = spec_.hidden,
                                              .x_stride = stride(),
                                              .dy_stride = spec_.hidden,
                                              .dx_stride = stride(),
                                              .dtype = hidden.dtype});
}

void MlpBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                        Elements dx) {
  const Elements activated = workspace_->at(activated_);
  out_.begin_backward(call, dbranch, embedding_dim_);
  out_.backward_input(call, dbranch, embedding_dim_, activated);
  activate_backward(call);
  out_.backward_weight(call, dbranch, embedding_dim_, activated);
  const ConstElements dhidden = workspace_->at(hidden_);
  if (both_) {
    both_->backward_weight(call, dhidden, stride(), x);
    both_->backward_input(call, dhidden, stride(), dx);
    return;
  }
  in_.begin_backward(call, dhidden, stride());
  in_.backward_weight(call, dhidden, stride(), x);
  if (up_) {
    up_->begin_backward(call, workspace_->at(up_hidden_), spec_.hidden);
    up_->backward_weight(call, workspace_->at(up_hidden_), spec_.hidden, x);
  }
  in_.backward_input(call, dhidden, stride(), dx);
  if (up_) {
    up_->backward_input(call, workspace_->at(up_hidden_), spec_.hidden, dx, /*accumulate=*/true);
  }
}

}  // namespace train::engine
