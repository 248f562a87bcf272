#include "engine/model/blocks/head_unit.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "engine/model/blocks/copy_rows.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/head/log_probs.hpp"
#include "kernels/head/row_distance.hpp"

namespace train::engine {

std::int64_t head_chunk_rows(std::int64_t rows, std::int64_t vocab_size, kernels::DType dtype) {
  constexpr std::int64_t kLargestBytes = std::int64_t{32} << 20;
  constexpr std::int64_t kFewRows = 64;  // Fewer take so much longer that more memory is spent.
  std::int64_t chunk = dtype == kernels::DType::bf16 ? 4096 : 16;
  const auto fits = [&](std::int64_t count) {
    const std::int64_t most = count > kFewRows ? kLargestBytes : 2 * kLargestBytes;
    return count * vocab_size * static_cast<std::int64_t>(sizeof(float)) <= most;
  };
  while (fits(2 * chunk)) {
    chunk *= 2;
  }
  return std::min(chunk, rows);
}

HeadUnit::HeadUnit(const kernels::KernelTable& kernels, Workspace& workspace, const ModelSpec& spec,
                   Workspace::Slot input)
    : LayerUnit("head", kernels, workspace, spec),
      vocab_size_(spec.vocab_size),
      tied_(spec.tie_embeddings),
      softcap_(spec.logit_softcap),
      left_out_(spec.prefix_tokens),
      input_(input),
      chunk_rows_(head_chunk_rows(workspace.rows(), spec.vocab_size, workspace.dtype())) {
  prefix_ = 0;
  if (left_out_ > 0) {
    token_rows_ = share_token_rows(workspace, spec);
  }
  traits_ = {.makes_loss = true, .gradient_in_forward = true};
  const BlockContext context{kernels, parameters_, workspace, spec.lora, ""};
  ln_f_.emplace(context, spec.final_norm, spec.embedding_dim, Phase::head);
  if (!tied_) {
    weight_ = parameters_.add({.name = spec.head,
                               .shape = {spec.vocab_size, spec.embedding_dim},
                               .group = ParameterGroup::decay,
                               .init = InitKind::linear,
                               .is_head = true});
  } else {
    weight_.frozen = spec.is_frozen("embedding", {.name = spec.embedding});
  }
  logits_ =
      workspace.scratch(Phase::head, "head logits", chunk_rows_ * spec.vocab_size, Content::floats);
  row_terms_ = workspace.scratch(Phase::head, "head row terms", workspace.rows() * 4 * 2,
                                 Content::floats);  // doubles
  output_ = ln_f_->output_slot();
  residual_gradient_ = share_residual_gradient(workspace, spec.embedding_dim);
}

ConstElements HeadUnit::token_input(kernels::Stream& stream, const Lane& lane) const {
  const ConstElements input = workspace_->at(input_);
  if (left_out_ == 0 || lane.cache == CacheUse::extend) {
    return input;
  }
  const Elements rows = workspace_->at(token_rows_);
  const std::int64_t cols = lane.seq_len * embedding_dim_;
  const std::int64_t before = left_out_ * embedding_dim_;
  copy_rows(
      *kernels_, stream, input + before, rows,
      {.rows = lane.sequences, .cols = cols, .from_stride = before + cols, .to_stride = cols});
  return rows;
}

void HeadUnit::spread_gradient(kernels::Stream& stream, const Lane& lane) const {
  const Elements gradient = workspace_->at(residual_gradient_);
  const Elements rows = workspace_->at(token_rows_);
  const std::int64_t cols = lane.seq_len * embedding_dim_;
  const std::int64_t before = left_out_ * embedding_dim_;
  const auto size = static_cast<std::int64_t>(kernels::size_of(gradient.dtype));
  const std::int64_t bytes = lane.sequences * (before + cols) * size;
  const RowsToCopy all{
      .rows = lane.sequences, .cols = cols, .from_stride = cols, .to_stride = cols};
  copy_rows(*kernels_, stream, gradient, rows, all);
  TRAIN_CHECK(bytes % static_cast<std::int64_t>(sizeof(float)) == 0, "{} bytes", bytes);
  kernels_->fill(stream, {.out = reinterpret_cast<float*>(gradient.data),
                          .count = bytes / static_cast<std::int64_t>(sizeof(float))});
  copy_rows(
      *kernels_, stream, rows, gradient + before,
      {.rows = lane.sequences, .cols = cols, .from_stride = cols, .to_stride = before + cols});
}

ConstElements HeadUnit::matrix(const UnitMemory& memory) const {
  TRAIN_CHECK(!tied_ || memory.tied_weights != nullptr, "tied embeddings: no embedding given");
  return (tied_ ? memory.tied_weights : memory.weights) + weight_.offset;
}

void HeadUnit::forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  const BlockCall call{stream, memory.weights, nullptr, lane};
  const ConstElements x = ln_f_->forward(call, token_input(stream, lane));
  if (lane.targets == nullptr) {
    return;
  }
  float* gradient = tied_ ? memory.tied_gradient : memory.gradient;
  TRAIN_CHECK(!lane.with_gradient ||
              (workspace_->with_gradient() && (weight_.frozen || gradient != nullptr)));
  const bool weight_gradient = lane.with_gradient && !weight_.frozen;
  // A second row of logits lies behind the first: there are half as many at a time.
  const bool with_reference = lane.row_loss == kernels::RowLoss::divergence;
  TRAIN_CHECK(!with_reference || chunk_rows_ > 1, "a divergence of a lane of one row");
  const std::int64_t chunk_rows =
      std::min(with_reference ? chunk_rows_ / 2 : chunk_rows_, lane.rows());
  float* logits = workspace_->floats_at(logits_);
  kernels_->head_loss(
      stream, {.x = x,
               .weight = matrix(memory),
               .targets = lane.targets,
               .row_weights = lane.row_weights,
               .sums = lane.sums,
               .dx = lane.with_gradient ? workspace_->at(residual_gradient_) : Elements(),
               .dweight = weight_gradient ? gradient + weight_.gradient : nullptr,
               .logits = logits,
               .row_terms = reinterpret_cast<double*>(workspace_->floats_at(row_terms_)),
               .rows = lane.rows(),
               .cols = embedding_dim_,
               .vocab = vocab_size_,
               .chunk_rows = chunk_rows,
               .loss_scale = lane.loss_scale,
               .z_scale = lane.z_scale,
               .label_smoothing = lane.label_smoothing,
               .softcap = softcap_,
               .dtype = workspace_->dtype(),
               .row_loss = lane.row_loss,
               .reference_x = lane.reference_input,
               .reference_logits = with_reference ? logits + chunk_rows * vocab_size_ : nullptr,
               .top_k = lane.top_k});
}

void HeadUnit::backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) {
  const BlockCall call{stream, memory.weights, memory.gradient, lane};
  const Elements d = workspace_->at(residual_gradient_);
  ln_f_->backward(call, token_input(stream, lane), d, d, /*accumulate=*/false);
  if (left_out_ > 0) {
    spread_gradient(stream, lane);
  }
}

void HeadUnit::row_log_probs(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane,
                             const kernels::LogProbResults& results) {
  const BlockCall call{stream, memory.weights, nullptr, lane};
  log_probs_of(stream, memory, lane, ln_f_->forward(call, token_input(stream, lane)), results);
}

void HeadUnit::log_probs_of(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane,
                            const void* input, const kernels::LogProbResults& results) {
  TRAIN_CHECK(lane.targets != nullptr, "log-probabilities of no targets");
  kernels_->token_log_probs(stream, {.x = input,
                                     .weight = matrix(memory),
                                     .targets = lane.targets,
                                     .results = results,
                                     .logits = workspace_->floats_at(logits_),
                                     .rows = lane.rows(),
                                     .cols = embedding_dim_,
                                     .vocab = vocab_size_,
                                     .chunk_rows = std::min(chunk_rows_, lane.rows()),
                                     .softcap = softcap_,
                                     .dtype = workspace_->dtype()});
}

void HeadUnit::output_distance(kernels::Stream& stream, const Lane& lane,
                               const OutputRows& rows) const {
  const double share = 1.0 / static_cast<double>(rows.outputs);
  kernels_->row_distance(stream,
                         {.x = rows.output,
                          .reference = rows.reference,
                          .targets = lane.targets,
                          .row_weights = lane.row_weights,
                          .sums = lane.sums,
                          .row_terms = reinterpret_cast<double*>(workspace_->floats_at(row_terms_)),
                          .rows = lane.rows(),
                          .cols = embedding_dim_,
                          .loss_scale = static_cast<float>(lane.loss_scale * share),
                          .share = share,
                          .add = !rows.first,
                          .dtype = workspace_->dtype()});
}

void HeadUnit::row_logits(kernels::Stream& stream, const UnitMemory& memory, std::int64_t first_row,
                          std::int64_t rows, float* logits) const {
  kernels_->matmul(stream, output_product({rows, embedding_dim_, vocab_size_},
                                          ln_f_->output() + first_row * embedding_dim_,
                                          matrix(memory), logits, vocab_size_));
}

}  // namespace train::engine
