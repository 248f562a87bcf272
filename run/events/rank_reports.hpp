#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace train::run {

/// A double as its bit pattern, exact for every value.
struct FloatBits {
  std::uint64_t bits = 0;

  FloatBits() = default;
  explicit FloatBits(double value) : bits(std::bit_cast<std::uint64_t>(value)) {}
  [[nodiscard]] double value() const { return std::bit_cast<double>(bits); }
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, FloatBits& x) {
  return f(x.bits);
}

/// Result of a training step on one rank, or of all ranks. `step` counts finished steps (1 after
/// the first).
struct StepFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  FloatBits loss;
  FloatBits grad_norm;
  FloatBits lr;
  /// Monotonic training time of the rank up to the step's end on its stream, since it was connected
  /// and without evaluations; for all ranks the longest. It never decreases, so differences between
  /// steps are the times between their ends.
  std::int64_t trained_ns = 0;
  bool nonfinite = false;  ///< Loss or norm not finite: no weight was changed.
  bool has_digest = false;
  std::uint64_t weights_digest = 0;  ///< Digest of the rank's rows; of all after summation.
  /// engine::tensor_digests() of everything in a checkpoint; summed like weights_digest. Empty: no
  /// digest.
  std::vector<std::uint64_t> tensor_digests = {};
  std::vector<std::uint64_t> unit_grad_norms;  ///< Bit patterns of doubles, by unit.
  /// engine::words_of() the optimizer's exact sums: of the rank's rows, of all once the conductor
  /// has added them up. Empty if there are none.
  std::vector<std::uint64_t> optimizer_sums = {};
  /// Bit patterns of StepResult::metrics; NaN if there is nothing to report.
  std::vector<std::uint64_t> objective_metrics = {};
};

/// Result of an evaluation, or of the answers to eval.choices, on one rank or of all ranks.
struct EvaluationFinished {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  bool of_choices = false;  ///< It holds documents, and no losses.
  FloatBits cross_entropy;  ///< Nats per token; for pairs or examples their mean loss.
  FloatBits accuracy;
  std::int64_t elapsed_ns = 0;  ///< Time since the rank had finished earlier work; for all ranks
                                ///< the longest.
  /// First document of eval.choices (storage/choices) that the rank has scored.
  std::int64_t first_document = 0;
  /// Bit patterns of doubles, one per document.
  std::vector<std::uint64_t> log_likelihoods = {};
  std::vector<std::uint64_t> objective_metrics = {};  ///< As in StepFinished.
};

/// Next token of each text of one rank, or of all ranks.
struct TokensSampled {
  std::int64_t step = 0;
  std::int32_t rank = 0;
  std::int64_t first_text = 0;  ///< First text that the rank has continued.
  std::vector<std::int32_t> tokens = {};
  std::int64_t elapsed_ns = 0;  ///< As in EvaluationFinished.
};

/// Texts that the run has sampled after a step: tokens that follow each prompt.
struct TextsSampled {
  std::int64_t step = 0;
  std::int64_t elapsed_ns = 0;        ///< Time of all tokens.
  std::vector<std::int64_t> lengths;  ///< New tokens of each text.
  std::vector<std::int32_t> tokens;   ///< One text after the other.
};

/// Checkpoint that is published and recorded.
struct CheckpointWritten {
  std::int64_t step = 0;
  std::string directory;
  std::uint64_t size_bytes = 0;
  std::int64_t elapsed_ns = 0;
};

/// Save, or a part of one, that has failed; the checkpoints before it remain.
struct CheckpointFailed {
  std::int64_t step = 0;
  std::int32_t rank = -1;  ///< Rank of the shard; -1: the checkpoint as a whole.
  std::string text;
};

}  // namespace train::run
