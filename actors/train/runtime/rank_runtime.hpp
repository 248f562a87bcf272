#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/messages/command_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "actors/train/lanes/lane_source.hpp"
#include "actors/train/memory/staging.hpp"
#include "actors/train/runtime/background_io.hpp"
#include "actors/train/runtime/step_clock.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "engine/collective/collective.hpp"
#include "engine/rank/rank_engine.hpp"
#include "engine/rank/state/host_state.hpp"
#include "kernels/device/stream.hpp"

namespace train::actors {

/// Where the work of a rank's streams runs.
enum class StreamKind : std::uint8_t {
  threads,  ///< Each stream a thread: the product.
  inline_,  ///< Inside enqueue(): tests on the deterministic scheduler.
};

/// The collectives of every pass, expanded once.
class CollectiveBook {
 public:
  CollectiveBook() = default;
  CollectiveBook(const engine::ShardPlan& plan, const engine::PassList& passes);

  [[nodiscard]] const std::vector<engine::CollectiveOp>& of(const Command& command) const;
  /// The pass's op of this kind, group and part (-1: of none); nullptr: it has none.
  [[nodiscard]] const engine::CollectiveOp* find(const engine::PassPlan& pass,
                                                 engine::CollectiveKind kind,
                                                 std::int32_t group = -1,
                                                 std::int32_t part = -1) const;

 private:
  std::vector<std::vector<engine::CollectiveOp>>
      by_pass_;  // And last of those that are none: empty.
};

/// Where a rank's snapshots in memory go, and how often.
struct MemoryKeeping {
  std::shared_ptr<const checkpoint::MemorySnapshots> snapshots;  ///< None: nowhere.
  std::int64_t interval = 0;
  std::shared_ptr<engine::HostState> rows;  ///< memory_rows(); the copy stream's.
};

/// What the actors of one rank share: the engine, the streams, the tokens and the wait board.
///
/// Ownership: actors hold it by shared_ptr. The engine goes after all that works on its memory:
/// streams are drained and joined, and transports, whose exchanges borrow it, are closed before, as
/// they are declared after it. Threading: the members' own rules; `waits` lines are
/// added while actors are spawned.
struct RankRuntime {
  RankRuntime(std::unique_ptr<engine::RankEngine> rank_engine,
              std::shared_ptr<const LaneSource> lane_source, StreamKind streams, int threads);

  std::int32_t rank = 0;
  std::uint32_t generation = 0;
  std::unique_ptr<engine::RankEngine> engine;
  engine::ChannelTransports transports;  ///< None when the rank is alone.
  CollectiveBook collectives;
  std::shared_ptr<const LaneSource> data;
  WaitBoard waits;
  RankBoard board;
  MemoryKeeping memory;  ///< None: no snapshots in memory.
  /// Commands of the reference's sweep that an earlier start of it has done.
  std::int64_t references_done = 0;
  /// Stores the reference's log-probabilities, of which so many commands are known; not after each
  /// of them. Blocking. None: it is another rank's.
  std::function<Status(const engine::ReferenceLogProbs&, std::int64_t commands)> keep_reference =
      {};
  StepClock clock;  ///< Runs on the compute stream.
  /// Of the first copy for a checkpoint, reserved; the copy stream's. None: made when it is needed.
  std::shared_ptr<Staging> staging;
  std::unique_ptr<RankTrace> trace;  ///< None: the run is not profiled.

  std::unique_ptr<kernels::Stream> compute;  ///< Kernels; `threads` threads.
  std::unique_ptr<kernels::Stream> copy;     ///< Snapshot copies.
  std::unique_ptr<kernels::Stream> input;    ///< Token reads.
  std::unique_ptr<kernels::Stream> disk;     ///< Checkpoints and their index.
  BackgroundIo background_io;                ///< For long work on `disk`.
  std::unique_ptr<kernels::Stream> reduce;   ///< Sums of what other ranks send; none when alone.

  /// Where gradients of several ranks are added, measured and broadcast: beside the lanes that the
  /// compute stream still has ahead of it. The compute stream waits for it before the norm and the
  /// update. One rank alone does it all on the compute stream.
  [[nodiscard]] kernels::Stream& reductions() const { return reduce ? *reduce : *compute; }

  /// The entry of the run's list. REQUIRES: CommandKind::pass.
  [[nodiscard]] const engine::PassPlan& pass_of(const Command& command) const {
    return engine->rank_plan().passes().at(command.pass);
  }
  [[nodiscard]] engine::CommandName name_of(const Command& command) const;
  /// Index of the step that it is of, or comes after; -1: of none.
  [[nodiscard]] std::int64_t step_index(const Command& command) const;
  /// From here on keeps what runs when (actors/profile). REQUIRES: before the actors are spawned.
  void start_trace();
  /// Enqueues on `compute` that a command begins there, or that the newest has run; nothing if the
  /// run is not profiled.
  void trace_begin(const Command& command) const;
  void trace_end() const;
  /// Reads a lane into its slot. Blocking (disk): call it on `input`.
  [[nodiscard]] Status read_lane(const engine::LaneWork& work) const;
  /// "block 3 (backward) of step 12, lane 0", for people; steps counted from 1.
  [[nodiscard]] std::string describe(const kernels::Mark& mark) const;
  /// "TrainStep 40": steps counted from 1, as far as the command has any.
  [[nodiscard]] static std::string describe(const CommandProgress& command);
  /// "gather #17 of TrainStep 40 (block 5)".
  [[nodiscard]] std::string describe(const ChannelProgress& place) const;
  /// Lanes of all ranks in this pass.
  [[nodiscard]] const engine::LaneSchedule& lanes(const engine::PassPlan& pass) const;
  /// The identity of a collective of this generation.
  [[nodiscard]] engine::CollectiveIdentity identity(const engine::CollectiveOp& op,
                                                    std::uint64_t sequence) const;
};

using RankContext = std::shared_ptr<RankRuntime>;

/// A stream for the disk whose thread has the smallest share of a core: what it does has time, and
/// the compute threads have none. Long work on it goes through BackgroundIo.
[[nodiscard]] std::unique_ptr<kernels::Stream> make_disk_stream();

/// The text of an exception in flight, one line.
[[nodiscard]] std::string exception_text(const std::exception_ptr& error);

/// As messages have them.
[[nodiscard]] std::vector<std::uint64_t> bits_of(const std::vector<double>& values);

/// What a rank reports of step `step` (from 0), in stream order. `with_digest`: also the digests of
/// its rows of all tensors, which takes a read of all of them.
[[nodiscard]] StepFinished step_event(RankRuntime& rank, std::int64_t step, bool with_digest);

/// What a rank reports of the evaluation after `step` steps, in stream order.
[[nodiscard]] EvaluationFinished evaluation_event(RankRuntime& rank, std::int64_t step);

/// The same of the answers to eval.choices: of the documents that the rank has scored.
[[nodiscard]] EvaluationFinished choices_event(RankRuntime& rank, std::int64_t step);

/// What a rank reports of such a search, in stream order.
[[nodiscard]] NonfiniteFound nonfinite_event(const RankRuntime& rank, const Command& command);

/// What the journal keeps of the event of all ranks; without the tokens.
[[nodiscard]] checkpoint::StepRecord step_record(const StepFinished& event);

/// The rank's share of its node's state, to be loaded for one snapshot after the other: on a
/// device's way there it lies in pinned memory, which is made here, once. Throws
/// kernels::DeviceError.
[[nodiscard]] std::unique_ptr<engine::HostState> memory_rows(
    const engine::RankEngine& engine, const checkpoint::MemorySnapshots& snapshots);
/// Writes memory_rows() after `step` steps to the node's memory, as MemorySnapshots::write() does.
/// Blocks. REQUIRES: the engine's work is done.
void write_to_memory(engine::HostState& rows, std::int64_t rank, std::int64_t step,
                     const checkpoint::MemorySnapshots& snapshots);

/// If one is due after `step` steps, enqueues the rank's snapshot in memory on the copy stream;
/// `copied`, which the next update waits for, is then the event of its being sealed (and of all
/// copies before it). A state that is not finite is left out, and the snapshot before it stays.
/// Does not block. REQUIRES: all work of earlier steps is on the compute stream, and none of an
/// update after `step` steps.
void save_memory_snapshot(const RankRuntime& rank, std::int64_t step, kernels::Event& copied);

}  // namespace train::actors
