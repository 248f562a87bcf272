#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/spec.hpp"

namespace train::kernels {

struct LogProbResults;

}  // namespace train::kernels

namespace train::engine {

/// Final norm, LM head and loss, fused: the logits exist for a few rows at a time. With tied
/// embeddings the head's matrix is the embedding's, and the unit has the norm alone.
class HeadUnit final : public LayerUnit {
 public:
  /// `input`: output slot of the last block.
  HeadUnit(const kernels::KernelTable& kernels, Workspace& workspace, const ModelSpec& spec,
           Workspace::Slot input);

  /// Computes the final norm; with lane.targets also the loss sums, and with lane.with_gradient the
  /// gradients of the head's weights and of the final norm's output.
  void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;
  void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) override;

  /// First of two passes over the head: the values that `results` requests for each row of the
  /// lane, which must have targets; row weights for forward(), the second pass, may follow from
  /// them. Called in place of forward() after the other units. On the CPU a log-probability has the
  /// bits of the row's cross-entropy there.
  void row_log_probs(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane,
                     const kernels::LogProbResults& results);

  /// row_log_probs() of rows that another forward pass has left (input()), instead of its own.
  void log_probs_of(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane,
                    const void* input, const kernels::LogProbResults& results);
  /// Input of the head's matrix in the last forward pass: [rows, embedding_dim].
  [[nodiscard]] ConstElements input() const { return ln_f_->output(); }

  /// Without the head: enqueues the distances of the rows of `output` from `reference`, which
  /// becomes their gradient, and writes *lane.sums (RowDistanceParams). Each of `outputs` has an
  /// equal share of the loss; `first`: none of them has been summed yet.
  struct OutputRows {
    ConstElements output;
    void* reference = nullptr;
    std::size_t outputs = 1;
    bool first = true;
  };
  void output_distance(kernels::Stream& stream, const Lane& lane, const OutputRows& rows) const;
  /// The gradient that a backward pass hands from unit to unit, [rows, embedding_dim].
  [[nodiscard]] Elements residual_gradient() const { return workspace_->at(residual_gradient_); }

  /// logits[rows, vocab_size] of rows of the last forward pass; without the model's cap.
  void row_logits(kernels::Stream& stream, const UnitMemory& memory, std::int64_t first_row,
                  std::int64_t rows, float* logits) const;

  [[nodiscard]] const double* row_terms() const {
    return reinterpret_cast<const double*>(workspace_->floats_at(row_terms_));
  }

 private:
  /// Rows of the tokens alone of what the last block gave.
  [[nodiscard]] ConstElements token_input(kernels::Stream& stream, const Lane& lane) const;
  /// Moves the gradient of the tokens' rows to their places behind those of prefixes, which are 0.
  void spread_gradient(kernels::Stream& stream, const Lane& lane) const;
  [[nodiscard]] ConstElements matrix(const UnitMemory& memory) const;

  std::int64_t vocab_size_;
  bool tied_;
  float softcap_;
  std::int64_t left_out_;  ///< Rows before each sequence that it does not read.
  Workspace::Slot input_, token_rows_ = 0;
  std::optional<NormBlock> ln_f_;
  ParameterPlace weight_;  ///< Place of the embedding, where it is tied to the head.
  std::int64_t chunk_rows_;
  Workspace::Slot logits_ = 0, row_terms_ = 0, residual_gradient_ = 0;
};

/// Rows of logits that exist at a time: the largest power of two whose logits fit in 32 MiB, or up
/// to 64 rows that fit in 64 MiB, at least 16, at most `rows`. Each chunk passes over the whole
/// matrix and its gradient, which costs more than logits that leave the last cache (measured by
/// `./dev bench --kernels`). Tensor cores (bf16) finish the products of 200 rows in the time in
/// which the fp32 gradient is read and written once (H200: 8 bytes an element at 4.3 TB/s, 6
/// operations an element and row at 650 TFLOP/s): at least 4096 there.
[[nodiscard]] std::int64_t head_chunk_rows(std::int64_t rows, std::int64_t vocab_size,
                                           kernels::DType dtype);

}  // namespace train::engine
