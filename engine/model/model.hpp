#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/unit_parameters.hpp"
#include "engine/model/workspace.hpp"

namespace train::kernels {

struct KernelTable;
struct LogProbResults;

}  // namespace train::kernels

namespace train::engine {

/// Activations that the backward pass finds in memory and those it recomputes. The options change
/// memory and time; results are bitwise identical for a given `dtype`.
struct ActivationOptions {
  Checkpointing checkpointing = {};
  /// Compute outputs of norms again rather than keep them; by default where that saves much.
  std::optional<bool> lean = {};
  /// Gradients that lie where activations did (plan_arena()): of models run for one lane at a time.
  std::vector<UnitBytes> gradients = {};
  /// Dtype of activations, their gradients and the weights that kernels read. bf16 only where the
  /// device's kernels know it; sums, statistics and gradients of weights stay fp32.
  kernels::DType dtype = kernels::DType::f32;
  /// Texts of seq_len tokens at most whose decoding state is kept (CacheUse); 0: of none.
  std::int64_t cached_texts = 0;
  CacheForm cache_form = CacheForm::expanded;  ///< Form for blocks that have the choice.
};

class HeadUnit;

/// The units of one model and the activations they share.
///
/// Ownership: owns units and activations, neither weights nor gradients. Borrows `kernels`.
class Model {
 public:
  /// `sequences` x `seq_len`: the largest lane. `with_gradient`: allocate what the backward pass
  /// needs.
  Model(const ModelSpec& spec, const kernels::KernelTable& kernels, std::int64_t sequences,
        std::int64_t seq_len, bool with_gradient, const ActivationOptions& options = {});
  [[nodiscard]] const ModelSpec& spec() const { return spec_; }
  /// layers + 2.
  [[nodiscard]] std::size_t unit_count() const { return units_.size(); }
  [[nodiscard]] LayerUnit& unit(std::size_t index);
  [[nodiscard]] const LayerUnit& unit(std::size_t index) const;

  /// After a forward pass of all units with lane.targets == nullptr: enqueues the logits, before
  /// any cap, of `rows` rows from `first_row` on, [rows, vocab_size] floats. `head`: as in the
  /// head's forward pass.
  void row_logits(kernels::Stream& stream, const UnitMemory& head, std::int64_t first_row,
                  std::int64_t rows, float* logits) const;

  /// HeadLossParams::row_terms of the head's last pass with a loss; the device's.
  [[nodiscard]] const double* row_terms() const;
  /// HeadUnit::row_log_probs, after a forward pass of all other units.
  void row_log_probs(kernels::Stream& stream, const UnitMemory& head, const Lane& lane,
                     const kernels::LogProbResults& results);

  /// HeadUnit::log_probs_of and input.
  void log_probs_of(kernels::Stream& stream, const UnitMemory& head, const Lane& lane,
                    const void* input, const kernels::LogProbResults& results);
  [[nodiscard]] ConstElements head_input() const;

  /// Output of the unit's forward pass, valid until the next unit's: [rows, embedding_dim].
  [[nodiscard]] ConstElements output(std::size_t unit) const {
    return workspace_->at(units_[unit]->output());
  }
  /// HeadUnit::output_distance of output(unit), right after the unit's forward pass.
  struct OutputDistance {
    std::size_t unit = 0;
    void* reference = nullptr;
    std::size_t outputs = 1;
    bool first = true;
  };
  void output_distance(kernels::Stream& stream, const Lane& lane, const OutputDistance& distance);
  /// Right before the unit's backward pass: enqueues that `gradient` is the one of its output, or
  /// `adds` to what the units above have left there.
  void add_output_gradient(kernels::Stream& stream, const Lane& lane, ConstElements gradient,
                           bool adds);

  /// Memory of ActivationOptions::gradients[index]; valid until the next forward pass.
  [[nodiscard]] float* gradient_memory(std::size_t index) const {
    return workspace_->gradient(index);
  }

  /// Bytes of activations and scratch besides those of gradients, for `--dry-run`.
  [[nodiscard]] std::size_t activation_bytes() const { return workspace_->allocated_bytes(); }

 private:
  [[nodiscard]] const HeadUnit& head() const;
  [[nodiscard]] HeadUnit& head();

  ModelSpec spec_;
  const kernels::KernelTable* kernels_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<LayerUnit>> units_;
};

/// Model::activation_bytes() of these options, computed without allocating.
[[nodiscard]] std::size_t planned_activation_bytes(const ModelSpec& spec, std::int64_t sequences,
                                                   std::int64_t seq_len, bool with_gradient,
                                                   const ActivationOptions& options = {});

}  // namespace train::engine
