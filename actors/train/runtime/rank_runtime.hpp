#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/system/background_io.hpp"
#include "actors/system/streams.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "actors/train/memory/staging.hpp"
#include "actors/train/runtime/step_clock.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "data/lanes/lane_source.hpp"
#include "engine/collective/collective.hpp"
#include "engine/host_state.hpp"
#include "engine/lanes/text_lanes.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {

/// Collectives of every pass, expanded once.
class CollectiveBook {
 public:
  CollectiveBook() = default;
  CollectiveBook(const engine::ShardPlan& plan, const engine::PassList& passes);

  [[nodiscard]] const std::vector<engine::CollectiveOp>& of(const Command& command) const;
  /// Finds the pass's op of this kind, group and part (-1: no group or part); nullptr: there is
  /// none.
  [[nodiscard]] const engine::CollectiveOp* find(const engine::PassPlan& pass,
                                                 engine::CollectiveKind kind,
                                                 std::int32_t group = -1,
                                                 std::int32_t part = -1) const;

 private:
  std::vector<std::vector<engine::CollectiveOp>>
      by_pass_;  // Last entry: commands without a pass, empty.
};

/// Destination and interval of a rank's snapshots in memory.
struct MemoryKeeping {
  std::shared_ptr<const checkpoint::MemorySnapshots> snapshots;  ///< May be null: no snapshots.
  std::int64_t interval = 0;
  std::shared_ptr<engine::HostState> rows;  ///< memory_rows(), used by the copy stream.
};

/// Shared state of one rank's actors: the engine, the streams, the tokens and the wait table.
///
/// Ownership: actors hold it by shared_ptr. The engine is destroyed after all users of its memory:
/// streams are drained and joined, and transports, whose exchanges borrow it, are closed before, as
/// they are declared after it. Threading: the members' own rules; `waits` lines are added while
/// actors are spawned.
struct RankRuntime {
  RankRuntime(std::unique_ptr<engine::RankEngine> rank_engine,
              std::shared_ptr<const data::LaneSource> lane_source, StreamKind streams, int threads);

  std::int32_t rank = 0;
  std::uint32_t generation = 0;
  std::unique_ptr<engine::RankEngine> engine;
  engine::ChannelTransports transports;  ///< Null for a single rank.
  CollectiveBook collectives;
  std::shared_ptr<const data::LaneSource> data;
  engine::TextLanes texts;  ///< Texts of the command that continues them.
  WaitTable waits;
  RankBoard board;
  MemoryKeeping memory;  ///< None: no snapshots in memory.
  /// Commands of the reference sweep done by an earlier start.
  std::int64_t references_done = 0;
  /// Stores the reference's log-probabilities, of which the first `commands` are known; may skip
  /// intermediate calls. Blocking. Null: another rank stores them.
  std::function<Status(const engine::ReferenceLogProbs&, std::int64_t commands)> keep_reference =
      {};
  StepClock clock;  ///< Runs on the compute stream.
  /// Reserved memory for the first checkpoint copy, used by the copy stream. Null: allocated on
  /// demand.
  std::shared_ptr<Staging> staging;
  std::unique_ptr<RankTrace> trace;  ///< Null: the run is not profiled.

  std::unique_ptr<kernels::Stream> compute;  ///< Kernels; `threads` threads.
  std::unique_ptr<kernels::Stream> copy;     ///< Snapshot copies.
  std::unique_ptr<kernels::Stream> input;    ///< Token reads.
  std::unique_ptr<kernels::Stream> disk;     ///< Checkpoints and their index.
  BackgroundIo background_io;                ///< For long work on `disk`.
  std::unique_ptr<kernels::Stream> reduce;   ///< Sums of other ranks' data; null for a single rank.

  /// Stream on which gradients of several ranks are summed, measured and broadcast, in parallel
  /// with the lanes queued on the compute stream. The compute stream waits for it before the norm
  /// and the update. A single rank uses the compute stream.
  [[nodiscard]] kernels::Stream& reductions() const { return reduce ? *reduce : *compute; }

  /// Pass of a command. REQUIRES: CommandKind::pass.
  [[nodiscard]] const engine::PassPlan& pass_of(const Command& command) const {
    return engine->rank_plan().passes().at(command.pass);
  }
  [[nodiscard]] engine::CommandName name_of(const Command& command) const;
  /// Index of the command's step, or of the step before it; -1: none.
  [[nodiscard]] std::int64_t step_index(const Command& command) const;
  /// Starts recording for actors/profile. REQUIRES: before the actors are spawned.
  void start_trace();
  /// Enqueues on `compute` a record that a command begins, or that the newest one has run; no-op if
  /// the run is not profiled.
  void trace_begin(const Command& command) const;
  void trace_end() const;
  /// Reads a lane into its slot. Blocking (disk): call it on `input`.
  [[nodiscard]] Status read_lane(const engine::LaneWork& work) const;
  /// Text for the user: "block 3 (backward) of step 12, lane 0"; steps counted from 1.
  [[nodiscard]] std::string describe(const kernels::Mark& mark) const;
  /// Text "TrainStep 40": steps counted from 1, if the command has a step.
  [[nodiscard]] static std::string describe(const CommandProgress& command);
  /// Text "gather #17 of TrainStep 40 (block 5)".
  [[nodiscard]] std::string describe(const ChannelProgress& place) const;
  /// Lanes of all ranks in this pass.
  [[nodiscard]] const engine::LaneSchedule& lanes(const engine::PassPlan& pass) const;
  /// Identity of a collective of this generation.
  [[nodiscard]] engine::CollectiveIdentity identity(const engine::CollectiveOp& op,
                                                    std::uint64_t sequence) const;
};

using RankContext = std::shared_ptr<RankRuntime>;

/// Bit patterns for messages.
[[nodiscard]] std::vector<std::uint64_t> bits_of(const std::vector<double>& values);

/// Report of step `step` (from 0), in stream order. `with_digest`: with digests of the rank's rows
/// of all tensors, which reads all of them.
[[nodiscard]] StepFinished step_event(RankRuntime& rank, std::int64_t step, bool with_digest);

/// Report of the evaluation after `step` steps, in stream order.
[[nodiscard]] EvaluationFinished evaluation_event(RankRuntime& rank, std::int64_t step);

/// Report of the answers to eval.choices, with the documents that the rank has scored.
[[nodiscard]] EvaluationFinished choices_event(RankRuntime& rank, std::int64_t step);

/// Report of the next token of each of the rank's texts, in stream order.
[[nodiscard]] TokensSampled tokens_event(RankRuntime& rank, std::int64_t step);

/// Report of a search for a non-finite value, in stream order.
[[nodiscard]] NonfiniteFound nonfinite_event(const RankRuntime& rank, const Command& command);

/// Enqueues the rank's snapshot in memory on the copy stream if one is due after `step` steps;
/// `copied`, which the next update waits for, is then the event of its sealing (and of all copies
/// before it). A non-finite state is skipped, and the snapshot before it stays. Does not block.
/// REQUIRES: all work of earlier steps is on the compute stream, and no work of an update after
/// `step` steps.
void save_memory_snapshot(const RankRuntime& rank, std::int64_t step, kernels::Event& copied);

}  // namespace train::actors
