#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/wait_board.hpp"
#include "configs/data_section.hpp"
#include "engine/rank_engine.hpp"
#include "kernels/device/stream.hpp"
#include "storage/lane_order.hpp"
#include "storage/token_dataset.hpp"

namespace train::actors {

/// Where the work of a rank's streams runs.
enum class StreamKind : std::uint8_t {
  threads,  ///< Each stream a thread: the product.
  inline_,  ///< Inside enqueue(): tests on the deterministic scheduler.
};

/// What the actors of one rank share: the engine, the streams, the tokens and the wait board.
///
/// Ownership: actors hold it by shared_ptr; the streams are declared last, so they are drained and
/// joined before the memory they work on goes. Threading: the members' own rules; `waits` lines are
/// added while actors are spawned.
struct RankRuntime {
  RankRuntime(std::unique_ptr<engine::RankEngine> rank_engine, storage::TokenDataset tokens,
              std::uint64_t seed, StreamKind streams, int threads);

  std::int32_t rank = 0;
  std::uint32_t generation = 0;
  std::unique_ptr<engine::RankEngine> engine;
  storage::TokenDataset dataset;
  storage::LaneOrder order;
  WaitBoard waits;

  std::unique_ptr<kernels::Stream> compute;  ///< Kernels; `threads` threads.
  std::unique_ptr<kernels::Stream> copy;     ///< Snapshot copies.
  std::unique_ptr<kernels::Stream> input;    ///< Token reads.
  std::unique_ptr<kernels::Stream> disk;     ///< Checkpoints and their index.

  /// Reads the tokens of a lane into its slot. Blocking (disk): call it on `input`.
  [[nodiscard]] Status read_lane(const engine::LaneWork& work) const;
  /// "block 3 (backward) of step 12, lane 0", for people; steps counted from 1.
  [[nodiscard]] std::string describe(const kernels::Mark& mark) const;
};

using RankContext = std::shared_ptr<RankRuntime>;

/// The text of an exception in flight, one line.
[[nodiscard]] std::string exception_text(const std::exception_ptr& error);

}  // namespace train::actors
