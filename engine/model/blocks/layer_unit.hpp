#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/elements.hpp"
#include "engine/model/spec.hpp"
#include "engine/model/unit_parameters.hpp"
#include "engine/model/workspace.hpp"
#include "engine/parameter.hpp"
#include "kernels/device/stream.hpp"
#include "kernels/kinds.hpp"

namespace train::kernels {

struct KernelTable;
struct LossSums;

}  // namespace train::kernels

namespace train::engine {

/// The use that a lane makes of the decoding state of texts (keys and values, or another), which
/// blocks keep from row to row (text generation).
enum class CacheUse : std::uint8_t {
  none,    ///< Training: a lane is all there is.
  fill,    ///< Documents begin texts; their state is filled.
  extend,  ///< Each row is the next token of a text, and sees what its state keeps.
};

/// One lane on its way through the units. All pointers are device memory that lives until the
/// stream has passed the lane.
struct Lane {
  std::int64_t step = 0;
  std::int64_t index = 0;
  std::int64_t sequences = 0;
  std::int64_t seq_len = 0;
  const std::int32_t* tokens = nullptr;  ///< [sequences, seq_len].
  /// [sequences, seq_len]: of tokens in their documents (AttentionForwardParams), or with
  /// CacheUse::extend of rows in their texts. nullptr: 0, 1, ... in each sequence. With
  /// ModelSpec::prefix these and `texts` count its rows, and have them but where texts are
  /// extended.
  const std::int32_t* positions = nullptr;
  CacheUse cache = CacheUse::none;
  const std::int32_t* texts = nullptr;  ///< [rows], with a cache: the text of each row.
  const std::int32_t* targets =
      nullptr;  ///< [sequences, seq_len]; nullptr when only logits are wanted.
  /// [sequences, seq_len]: what an objective multiplies each target's loss by; nullptr: 1.
  const float* row_weights = nullptr;
  kernels::LossSums* sums = nullptr;  ///< Written by the head.
  /// [sum, count] of each of ModelSpec::block_sums(): zeros, which Block::forward_kept() writes
  /// over; nullptr: not requested.
  double* block_sums = nullptr;
  /// Sums of all lanes of the step, without their counts, in the order of ModelSpec::block_sums();
  /// nullptr: no block reads them (BlockSpec::reads_step_sums), or this pass finds them.
  const double* step_sums = nullptr;
  bool sums_alone = false;  ///< A forward pass for the sake of block_sums that step_sums add up.
  float label_smoothing = 0.0F;  ///< HeadLossParams, as are row_loss and top_k.
  kernels::RowLoss row_loss = kernels::RowLoss::cross_entropy;
  std::int64_t top_k = 0;
  /// RowLoss::divergence: what the head's matrix is multiplied by in the reference model, of the
  /// activations' type, [rows, embedding_dim].
  const void* reference_input = nullptr;
  float loss_scale = 1.0F;    ///< 1 / tokens of the global batch.
  float z_scale = 0.0F;       ///< z_loss_coeff / tokens of the global batch.
  float lane_scale = 0.0F;    ///< 1 / lanes of the step: of losses that are means over lanes.
  bool with_gradient = true;  ///< The head also computes gradients (training).
  bool adapters = true;       ///< false: linear maps are without theirs.

  [[nodiscard]] std::int64_t rows() const { return sequences * seq_len; }
};

/// Memory of a unit's weights and gradients in one pass: device memory that lives until the stream
/// has passed.
struct UnitMemory {
  ConstElements weights = nullptr;  ///< Flat [element_count()], of the activations' type.
  float* gradient = nullptr;        ///< Flat [gradient_count()]; nullptr where none is wanted.
  /// model.tie_embeddings: the flat buffers of the embedding unit (its matrix is at their start),
  /// which the head reads and, unless it is frozen, overwrites. Other units ignore them.
  ConstElements tied_weights = nullptr;
  float* tied_gradient = nullptr;
};

/// Context of a block's construction: the block adds its parameters to the unit and reserves slots.
struct BlockContext {
  const kernels::KernelTable& kernels;
  ParameterList& parameters;
  Workspace& workspace;
  const LoraSpec& lora;
  std::string prefix;  ///< "transformer.h.0.": starts the names of parameters and kept buffers.
};

/// One forward or backward call of a unit, as its blocks see it.
struct BlockCall {
  kernels::Stream& stream;
  ConstElements weights;  ///< Flat buffer of the unit.
  float* gradient;        ///< Flat buffer of the unit; nullptr in a forward pass.
  const Lane& lane;
  bool again = false;  ///< The backward pass computes again what the lane has computed before.
};

/// A sharding unit: the embedding, one transformer block, or final norm + head.
///
/// Its output activations stay in the model's workspace, so units are called in order: forward
/// 0, 1, ... n-1, backward n-1 ... 0, one lane at a time on one stream.
/// Threading: calls only enqueue on the stream and return; a unit is driven by one owner.
/// Ownership: borrows weights and gradients, which must outlive the stream's work.
class LayerUnit {
 public:
  virtual ~LayerUnit() = default;
  LayerUnit(const LayerUnit&) = delete;
  LayerUnit& operator=(const LayerUnit&) = delete;

  /// "embedding", "block 0", ..., "head".
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const {
    return parameters_.parameters();
  }
  /// Elements of the flat buffers (padding included).
  [[nodiscard]] std::int64_t element_count() const { return parameters_.element_count(); }
  /// Elements of the flat gradient (padding included).
  [[nodiscard]] std::int64_t gradient_count() const { return parameters_.gradient_count(); }
  [[nodiscard]] const UnitTraits& traits() const { return traits_; }
  /// Slot of the unit's output activations, [rows, embedding_dim].
  [[nodiscard]] Workspace::Slot output() const { return output_; }

  /// Enqueues the forward pass.
  /// For the head: writes *lane.sums and, with lane.with_gradient, already the gradient of its
  /// input and of its weights (the fused kernel computes both), kept until backward(). With tied
  /// embeddings the latter goes to memory.tied_gradient.
  virtual void forward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) = 0;
  /// Enqueues the backward pass: reads and replaces the residual gradient in the workspace,
  /// overwrites every trained parameter's part of memory.gradient (this lane's gradient alone).
  /// With tied embeddings the embedding adds to what the head has left there.
  virtual void backward(kernels::Stream& stream, const UnitMemory& memory, const Lane& lane) = 0;
  /// Enqueues a count of NaN and Inf among this unit's forward output (for the search of the layer
  /// where they first appeared). *nonfinite is written on the stream.
  void count_nonfinite_output(kernels::Stream& stream, const Lane& lane,
                              std::int64_t* nonfinite) const;

 protected:
  /// `spec` must outlive the constructors alone.
  LayerUnit(std::string name, const kernels::KernelTable& kernels, Workspace& workspace,
            const ModelSpec& spec)
      : name_(std::move(name)),
        kernels_(&kernels),
        workspace_(&workspace),
        embedding_dim_(spec.embedding_dim),
        prefix_(spec.prefix_tokens),
        parameters_([this, &spec](const Parameter& parameter) {
          return spec.is_frozen(name_, parameter);
        }) {}

  /// The lane as layers see it: each sequence with the rows of ModelSpec::prefix before its tokens.
  [[nodiscard]] Lane with_prefix(const Lane& lane) const;

  /// With ModelSpec::prefix: rows of the tokens alone, [rows, embedding_dim], until another unit
  /// writes them.
  [[nodiscard]] static Workspace::Slot share_token_rows(Workspace& workspace,
                                                        const ModelSpec& spec) {
    return workspace.share("rows of tokens", workspace.rows() * spec.embedding_dim);
  }
  /// The residual stream's gradient, [rows, embedding_dim], handed from unit to unit.
  [[nodiscard]] static Workspace::Slot share_residual_gradient(Workspace& workspace,
                                                               std::int64_t embedding_dim) {
    return workspace.share_backward("residual gradient", workspace.rows() * embedding_dim);
  }

  std::string name_;
  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  std::int64_t embedding_dim_;
  std::int64_t prefix_;  ///< Rows before the tokens of each sequence of its output.
  ParameterList parameters_;
  UnitTraits traits_;
  Workspace::Slot output_ = 0;
};

}  // namespace train::engine
