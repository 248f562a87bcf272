#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/state_view.hpp"
#include "storage/files/shared_memory.hpp"

namespace train::checkpoint {

/// The newest states of a node's ranks, in memory that outlives the processes of the ranks: the
/// launcher makes it, each rank writes its shard there every few steps, and the ranks of the next
/// generation read it. Any number of ranks may die at any instant.
///
/// Every rank has two slots. A snapshot is written over the older one and sealed last, with step
/// and digest, so that a slot is whole or not sealed (CK-10). Two are enough if snapshots lie at
/// least two steps apart and no rank starts the update of step S + 1 before its snapshot of S is
/// sealed: a rank that begins to write S + k, k >= 2, has finished an update beyond S + 1, which
/// took gradients that every rank computed after its own update of S + 1; so every rank has sealed
/// S, and what is overwritten is of no use any more.
///
/// Threading: each rank's slots have one writer, its process; everybody else reads them when that
/// process has ended. Ownership: of the mapping; bytes are valid while this lives.
class MemorySnapshots {
 public:
  static constexpr int kSlots = 2;  ///< Of each rank.

  /// Whose snapshots these are.
  struct Layout {
    std::int64_t ranks = 1;                  ///< Of the run.
    std::uint64_t plan_digest = 0;           ///< ShardPlan::digest() of those ranks.
    std::int64_t first_rank = 0;             ///< Of this node.
    std::vector<std::uint64_t> shard_bytes;  ///< Of each rank of the node, from first_rank on.

    friend bool operator==(const Layout&, const Layout&) = default;
  };

  /// Memory that create() takes: twice the largest shard for each rank, and some pages.
  [[nodiscard]] static std::uint64_t size_bytes(const Layout& layout);
  /// Empty slots. Errors: those of storage::SharedMemory::create().
  [[nodiscard]] static Result<MemorySnapshots> create(const Layout& layout);
  /// The same memory in another process. Errors (failure): `descriptor` is of something else.
  [[nodiscard]] static Result<MemorySnapshots> attach(int descriptor);

  [[nodiscard]] int descriptor() const { return memory_.descriptor(); }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] bool has(std::int64_t rank) const;

  /// Copies the rank's state after `step` steps and seals it; nothing if that step is there
  /// already. REQUIRES: has(rank); `shard` has the layout's number of bytes.
  void write(std::int64_t rank, std::int64_t step, std::span<const engine::StateView> shard) const;

  /// The steps that every rank of the node has whole, their digests compared, the newest first.
  [[nodiscard]] std::vector<std::int64_t> whole_steps() const;
  /// Of every snapshot that is sealed here: whether its bytes are those that were sealed. One that
  /// is damaged is given up: from here on what is sealed is whole, until somebody writes. Reads all
  /// bytes. REQUIRES: nobody writes.
  struct Damaged {
    std::int64_t rank = 0;
    std::int64_t step = 0;
  };
  [[nodiscard]] std::vector<Damaged> give_up_damaged() const;
  /// Whether the rank has sealed `step`, and its bytes match the digest. Reads them.
  [[nodiscard]] bool whole(std::int64_t rank, std::int64_t step) const;
  /// whole_steps() without a look at the bytes, also while the ranks write.
  [[nodiscard]] std::vector<std::int64_t> sealed_steps() const;
  /// Whether `step` is among those.
  [[nodiscard]] bool has_sealed(std::int64_t step) const;
  /// From here on there is no other snapshot than of `step`; none: there is none at all.
  void keep_only(std::optional<std::int64_t> step) const;
  /// The bytes of a sealed snapshot in the order of the rank's shard; empty if there is none.
  [[nodiscard]] std::span<std::byte> bytes_of(std::int64_t rank, std::int64_t step) const;
  /// Of a sealed snapshot, as it was written; none: there is none.
  [[nodiscard]] std::optional<std::uint64_t> digest_of(std::int64_t rank, std::int64_t step) const;

  // A snapshot that comes in pieces, from other memory of the same layout.

  /// Gives up the rank's older snapshot: where the bytes of a new one go.
  [[nodiscard]] std::span<std::byte> open(std::int64_t rank) const;
  /// They are all there. REQUIRES: open() before.
  void seal(std::int64_t rank, std::int64_t step, std::uint64_t digest) const;

 private:
  struct Slot;
  MemorySnapshots(storage::SharedMemory memory, Layout layout);
  [[nodiscard]] Slot slot(std::int64_t rank, int number) const;
  [[nodiscard]] Slot older_slot(std::int64_t rank) const;
  [[nodiscard]] std::optional<Slot> sealed_slot(std::int64_t rank, std::int64_t step) const;
  template <class Good>
  [[nodiscard]] std::vector<std::int64_t> steps_where(Good good) const;

  storage::SharedMemory memory_;
  Layout layout_;
  std::uint64_t slot_bytes_ = 0;
};

}  // namespace train::checkpoint
