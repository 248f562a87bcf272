#include "engine/model/model.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "engine/model/blocks/embedding_unit.hpp"
#include "engine/model/blocks/head_unit.hpp"
#include "engine/model/blocks/transformer_block.hpp"
#include "engine/model/workspace.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::engine {
namespace {

/// True if outputs of norms (two residual streams per block, and queries and keys) are better
/// recomputed than kept. That costs 1 % of a step with large products (n_embd 768) and 4 % with
/// small ones (128), where memory does not matter either. With tensor cores passes over memory
/// weigh more (2 % of a step of 124 M weights on an H200, by their bytes): there only runs that
/// recompute activations anyway do it.
bool better_lean(const ModelSpec& spec, std::int64_t rows, const ActivationOptions& options) {
  if (options.dtype == kernels::DType::bf16) {
    return options.checkpointing.every > 0;
  }
  constexpr std::int64_t kLargestFloats = std::int64_t{16} << 20;
  return 4 * static_cast<std::int64_t>(spec.layers.size()) * rows * spec.embedding_dim >
         kLargestFloats;
}

/// Builds the units and reserves what they need in `workspace`; allocates nothing.
std::vector<std::unique_ptr<LayerUnit>> build_units(const ModelSpec& spec,
                                                    const kernels::KernelTable& kernels,
                                                    Workspace& workspace,
                                                    const ActivationOptions& options) {
  const Checkpointing& checkpointing = options.checkpointing;
  TRAIN_CHECK(checkpointing.every >= 0, "checkpointing of every {}", checkpointing.every);
  workspace.cached_texts(options.cached_texts, options.cache_form);
  workspace.lean(options.lean.value_or(better_lean(spec, workspace.rows(), options)));
  const std::size_t lowest = workspace.with_gradient() ? lowest_trained_unit(spec) : 0;
  workspace.forward_only(lowest > 0);
  std::vector<std::unique_ptr<LayerUnit>> units;
  auto embedding = std::make_unique<EmbeddingUnit>(kernels, workspace, spec);
  Workspace::Slot residual = embedding->output();
  units.push_back(std::move(embedding));
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    workspace.begin_unit(units.size());
    workspace.forward_only(units.size() < lowest);
    auto block = std::make_unique<TransformerBlock>(
        kernels, workspace, spec,
        TransformerBlock::Options{
            .index = layer, .input = residual, .checkpointing = checkpointing});
    residual = block->output();
    units.push_back(std::move(block));
  }
  workspace.begin_unit(units.size());
  workspace.forward_only(false);
  units.push_back(std::make_unique<HeadUnit>(kernels, workspace, spec, residual));
  workspace.share_gradients(options.gradients);
  return units;
}

}  // namespace

Model::Model(const ModelSpec& spec, const kernels::KernelTable& kernels, std::int64_t sequences,
             std::int64_t seq_len, bool with_gradient, const ActivationOptions& options)
    : spec_(spec),
      kernels_(&kernels),
      workspace_(std::make_unique<Workspace>(sequences, seq_len + spec.prefix_tokens, with_gradient,
                                             options.dtype)),
      units_(build_units(spec, kernels, *workspace_, options)) {
  TRAIN_CHECK(options.dtype == kernels::DType::f32 || kernels.device->knows_bf16,
              "the kernels of {} know no bf16", kernels.name);
  workspace_->allocate(kernels.device->memory);
}

LayerUnit& Model::unit(std::size_t index) {
  TRAIN_CHECK(index < units_.size(), "unit {} of {}", index, units_.size());
  return *units_[index];
}

const LayerUnit& Model::unit(std::size_t index) const {
  TRAIN_CHECK(index < units_.size(), "unit {} of {}", index, units_.size());
  return *units_[index];
}

// build_units puts the head last.
const HeadUnit& Model::head() const { return static_cast<const HeadUnit&>(*units_.back()); }
HeadUnit& Model::head() { return static_cast<HeadUnit&>(*units_.back()); }

void Model::row_logits(kernels::Stream& stream, const UnitMemory& head, std::int64_t first_row,
                       std::int64_t rows, float* logits) const {
  this->head().row_logits(stream, head, first_row, rows, logits);
}

const double* Model::row_terms() const { return head().row_terms(); }

void Model::row_log_probs(kernels::Stream& stream, const UnitMemory& head, const Lane& lane,
                          const kernels::LogProbResults& results) {
  this->head().row_log_probs(stream, head, lane, results);
}

void Model::log_probs_of(kernels::Stream& stream, const UnitMemory& head, const Lane& lane,
                         const void* input, const kernels::LogProbResults& results) {
  this->head().log_probs_of(stream, head, lane, input, results);
}

ConstElements Model::head_input() const { return head().input(); }

void Model::output_distance(kernels::Stream& stream, const Lane& lane,
                            const OutputDistance& distance) {
  TRAIN_CHECK(spec_.prefix_tokens == 0, "distances of rows before the tokens");
  head().output_distance(stream, lane,
                         {.output = output(distance.unit),
                          .reference = distance.reference,
                          .outputs = distance.outputs,
                          .first = distance.first});
}

void Model::add_output_gradient(kernels::Stream& stream, const Lane& lane, ConstElements gradient,
                                bool adds) {
  const Elements total = head().residual_gradient();
  const std::int64_t count = lane.rows() * spec_.embedding_dim;
  if (adds) {
    kernels_->residual_add(
        stream,
        {.x = total, .branch = gradient, .out = total, .count = count, .dtype = total.dtype});
  } else {
    kernels_->copy(stream, {.out = total,
                            .in = gradient,
                            .size_bytes = count * static_cast<std::int64_t>(size_of(total.dtype))});
  }
}

std::size_t planned_activation_bytes(const ModelSpec& spec, std::int64_t sequences,
                                     std::int64_t seq_len, bool with_gradient,
                                     const ActivationOptions& options) {
  Workspace workspace(sequences, seq_len + spec.prefix_tokens, with_gradient, options.dtype);
  const auto units = build_units(spec, kernels::cpu_backend(), workspace, options);
  return workspace.size_bytes();
}

std::vector<UnitParameters> describe_units(const ModelSpec& spec) {
  Workspace workspace(1, 1 + spec.prefix_tokens, false);
  std::vector<UnitParameters> described;
  for (const auto& unit : build_units(spec, kernels::cpu_backend(), workspace, {})) {
    described.push_back({unit->name(), unit->parameters(), unit->element_count(), unit->traits()});
  }
  return described;
}

std::int64_t UnitParameters::gradient_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parameters) {
    count += parameter.frozen ? 0 : padded(parameter.places(parameter.count()));
  }
  return count;
}

std::size_t lowest_trained_unit(const ModelSpec& spec) {
  if (spec.frozen.empty() && spec.lora.rank == 0) {
    return 0;
  }
  const std::vector<UnitParameters> units = describe_units(spec);
  const auto trained = std::find_if(units.begin(), units.end(), [](const UnitParameters& unit) {
    return unit.gradient_count() > 0;
  });
  return static_cast<std::size_t>(trained - units.begin());
}

}  // namespace train::engine
