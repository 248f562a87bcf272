#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/sections/data_section.hpp"
#include "configs/sections/lora_section.hpp"
#include "configs/sections/objective_section.hpp"
#include "configs/sections/optimizer_section.hpp"
#include "configs/sections/parallel_section.hpp"
#include "engine/generate/sampling.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"
#include "engine/model/workspace.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "engine/sharding/shard_plan.hpp"

namespace train::engine {

/// State kept in memory of kind Device::offload; the rest is where kernels compute.
enum class Offload : std::uint8_t {
  nothing,
  optimizer,   ///< The optimizer's state tensors.
  parameters,  ///< Also masters and shards of weights; not weights that layers read.
};

/// Checkpointing and offload as [memory] sets them.
[[nodiscard]] Checkpointing checkpointing_of(const configs::MemorySection& section);
[[nodiscard]] Offload offload_of(const configs::MemorySection& section);
/// True if bf16 weights are made of the masters for each visit of a layer, where all masters are
/// here.
[[nodiscard]] bool makes_weights(const configs::MemorySection& section);

/// Options of an engine, identical on all ranks except `rank`.
struct RankOptions {
  ModelSpec model;
  InitOptions init;
  configs::BatchSection batch;
  configs::ObjectiveSection objective;
  configs::OptimizerSection optimizer;
  configs::ScheduleSection schedule;
  configs::ParallelSection parallel;
  configs::PrecisionSection precision;
  configs::MemorySection memory;
  configs::TrainSection train;
  configs::LoraSection lora;
  std::int64_t rank = 0;
  std::int64_t seq_len = 0;
  std::int64_t total_steps = 0;
  std::int64_t eval_lanes = 0;  ///< Lanes of an evaluation, whose losses are added up.
  /// Lanes whose documents are scored (DocumentScores).
  std::int64_t scored_lanes = 0;
  std::int64_t sampled_texts = 0;  ///< Texts that are sampled at a time (SampledTokens).
  SamplingOptions sampling = {};   ///< Choice of their tokens.
  std::int64_t sources = 0;  ///< Sources whose losses are told apart (SourceSums); 0: one of all.
  std::int32_t lane_slots = 4;
  /// The optimizer's sums (StepResult) are made every this many finished steps and at the last.
  std::int64_t diagnostics_interval = 1;
  bool knows_bf16 = false;  ///< The device's; an engine takes it from its kernels.
  /// Parameters that must not be sharded, besides those of the optimizer.
  std::vector<std::string> whole_parameters = {};
  /// Sum of the weights of the targets of pass `pass` of step `step` (both from 0), over all lanes;
  /// the same on every rank, and thread-safe. None: every token has a target of weight 1.
  std::function<double(std::int64_t step, std::size_t pass)> step_weight = {};
  /// Documents of a lane at most (LaneSequence); 0: as many as could be.
  std::int64_t lane_sequences = 0;
  /// The engine is for the phase of this step (from 0) alone, where state is kept by phase
  /// (keeps_state_by_phase()): what other phases train is frozen. -1: for the whole run.
  std::int64_t phase_step = -1;
  /// Documents of training and validation together, for objectives that read a reference.
  std::int64_t reference_documents = 0;
};

/// The plan of `options`, which every rank and the launcher derive alike. Errors: ShardPlan::make.
[[nodiscard]] Result<ShardPlan> plan_of(const RankOptions& options);
/// Likewise, of `units`, those of another plan of the same model: its parameters sharded by other
/// options.
[[nodiscard]] Result<ShardPlan> plan_of(const RankOptions& options,
                                        std::vector<UnitParameters> units);
/// Optimizer that [optimizer] and [train] set; planning, state and updates use equal ones.
[[nodiscard]] std::unique_ptr<Optimizer> optimizer_of(const RankOptions& options);
/// The model with what train.freeze names frozen, and with the adapters of [lora].
[[nodiscard]] ModelSpec trained_model(const RankOptions& options);
/// True if a layer's optimizer state ends with its phase (TrainingSchedule::state_by_phase()); a
/// running average of the weights outlasts the phase.
[[nodiscard]] bool state_ends_with_phase(const RankOptions& options);
/// True if a run keeps gradients, masters and moments only of what a phase trains; never on several
/// nodes, whose launchers do not change their plans together.
[[nodiscard]] bool keeps_state_by_phase(const RankOptions& options);
/// The step after which ranks of `options` end, for those of the next phase or for good.
[[nodiscard]] std::int64_t last_step_of(const RankOptions& options);
/// Ranks of `options`, of one phase, whose first step would be `step` begin it.
[[nodiscard]] bool begins_phase(const RankOptions& options, std::int64_t step);
/// True if the next step after `step` steps needs moments of the layer: its training has begun
/// and continues. REQUIRES: state_ends_with_phase().
[[nodiscard]] bool goes_on_training(const RankOptions& options, std::int64_t layer,
                                    std::int64_t step);
/// objective.first_layer as a layer, where it stands for the model's last.
[[nodiscard]] configs::ObjectiveSection with_layers(const configs::ObjectiveSection& section,
                                                    std::int64_t layers);
/// Error (user) when the objective's steps (TrainingSchedule) do not fit model and run, or all of a
/// layer that one of them trains is frozen.
[[nodiscard]] Status check_schedule(const RankOptions& options);
/// Error (user) naming train.freeze when a pattern matches no parameter and no unit, or when
/// nothing is left to train; or naming [lora] when a target matches nothing or its rank is too
/// large.
[[nodiscard]] Status check_freeze(const RankOptions& options);

}  // namespace train::engine
