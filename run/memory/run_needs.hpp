#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/rank/plan/rank_layout.hpp"
#include "run/plan/run_plan.hpp"

// Memory and disk that a run takes, planned without allocating anything.
namespace train::run {

/// Bytes of a process besides those counted apart: threads and their scratch, actors, the heap.
/// Measured; without the pages of code, which all processes share, and what a device's driver
/// keeps.
inline constexpr std::uint64_t kProgramBytes = std::uint64_t{9} << 20;

/// Bytes that a run takes at most: of each device, of the host for each rank and each node, of the
/// disk. Rows of tables of bytes; nothing is counted twice.
struct RunNeeds {
  engine::MemoryPlan engine;  ///< The fullest rank's engine, where its kernels compute.
  bool has_device = false;    ///< That is a device; else it is the host.

  std::uint64_t device_ranks = 1;             ///< Ranks that share a device.
  std::uint64_t offloaded_bytes = 0;          ///< Host memory of a device's engine.
  std::uint64_t transfer_copies_bytes = 0;    ///< Copies on the way between devices and ranks.
  std::uint64_t checkpoint_copies_bytes = 0;  ///< Two copies of the shard: written, waiting.
  std::uint64_t snapshot_copy_bytes = 0;      ///< Copy between a device and the snapshots.
  std::uint64_t digest_copy_bytes = 0;        ///< Copy of the shard's largest tensor.
  std::uint64_t programs = 1;                 ///< Processes on the fullest node.
  std::uint64_t node_ranks = 1;               ///< Ranks on the fullest node.
  std::uint64_t node_snapshots_bytes = 0;     ///< Snapshots that the node keeps in memory.

  std::uint64_t checkpoint_bytes = 0;  ///< One checkpoint, of all ranks.
  std::uint64_t checkpoints = 0;       ///< most_checkpoints().

  /// Bytes of each device; 0 without a device.
  [[nodiscard]] std::uint64_t device_bytes() const {
    return has_device ? device_ranks * engine.total_bytes() : 0;
  }
  /// Bytes of the host for each rank, without the program.
  [[nodiscard]] std::uint64_t rank_bytes() const {
    return (has_device ? 0 : engine.total_bytes()) + offloaded_bytes + transfer_copies_bytes +
           checkpoint_copies_bytes + snapshot_copy_bytes + digest_copy_bytes;
  }
  /// Bytes of the host of the fullest node, with all its processes.
  [[nodiscard]] std::uint64_t node_bytes() const {
    return node_ranks * rank_bytes() + programs * kProgramBytes + node_snapshots_bytes;
  }
};

/// Ranks whose layouts are looked at for the fullest one: all, or those at both ends.
[[nodiscard]] std::vector<std::int64_t> measured_ranks(std::int64_t ranks);

/// Takes the layout of one of measured_ranks().
using LayoutVisitor =
    std::function<void(const engine::ShardPlan& plan, const engine::RankLayout& layout)>;

/// Needs of `run` with `options` in place of its own (another strategy). REQUIRES: plan_of(options)
/// is not an error.
[[nodiscard]] RunNeeds needs_of(const RunPlan& run, const engine::RankOptions& options);
/// Likewise, with plan_of(options) as `plan`. Calls `visit` for each of measured_ranks(), in their
/// order. `other`: needs of the same run with other options, of which the disk's are taken;
/// nullptr: none are known.
[[nodiscard]] RunNeeds needs_of(const RunPlan& run, const engine::RankOptions& options,
                                const engine::ShardPlan& plan, const LayoutVisitor& visit,
                                const RunNeeds* other);

}  // namespace train::run
