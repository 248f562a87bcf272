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

/// Newest states of a node's ranks, in memory that survives the processes of the ranks: the
/// launcher creates it, each rank writes its shard there every few steps, and the ranks of the next
/// generation read it. Any number of ranks may die at any instant.
///
/// Every rank has two slots. A snapshot overwrites the older one and is sealed last, with step and
/// digest, so that a slot is complete or not sealed (CK-10). Two slots suffice if snapshots are at
/// least two steps apart and no rank starts the update of step S + 1 before its snapshot of S is
/// sealed: a rank that begins to write S + k, k >= 2, has finished an update beyond S + 1, which
/// used gradients that every rank computed after its own update of S + 1; so every rank has sealed
/// S, and the overwritten snapshot is no longer needed.
///
/// Threading: each rank's slots have one writer, its process; others read them after that process
/// has ended. Ownership: owns the mapping; bytes are valid while this object lives.
class MemorySnapshots {
 public:
  static constexpr int kSlots = 2;  ///< Slots per rank.

  /// Layout of the snapshots.
  struct Layout {
    std::int64_t ranks = 1;                  ///< Number of ranks of the run.
    std::uint64_t plan_digest = 0;           ///< ShardPlan::digest() of those ranks.
    std::int64_t first_rank = 0;             ///< First rank of this node.
    std::vector<std::uint64_t> shard_bytes;  ///< For each rank of the node, from first_rank on.

    friend bool operator==(const Layout&, const Layout&) = default;
  };

  /// Memory needed by create(): twice the largest shard for each rank, and some pages.
  [[nodiscard]] static std::uint64_t size_bytes(const Layout& layout);
  /// Creates empty slots. Errors: those of storage::SharedMemory::create().
  [[nodiscard]] static Result<MemorySnapshots> create(const Layout& layout);
  /// Attaches the memory in another process. Errors (failure): `descriptor` belongs to something
  /// else.
  [[nodiscard]] static Result<MemorySnapshots> attach(int descriptor);

  [[nodiscard]] int descriptor() const { return memory_.descriptor(); }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] bool has(std::int64_t rank) const;

  /// Copies the rank's state after `step` steps and seals it; no-op if that step is already there.
  /// REQUIRES: has(rank); `shard` has the layout's number of bytes.
  void write(std::int64_t rank, std::int64_t step, std::span<const engine::StateView> shard) const;

  /// Steps that every rank of the node has complete, with digests verified, newest first.
  [[nodiscard]] std::vector<std::int64_t> whole_steps() const;
  /// Verifies every sealed snapshot. A damaged one is discarded: afterwards every sealed one is
  /// intact, until the next write. Reads all bytes. REQUIRES: no rank is writing.
  struct Damaged {
    std::int64_t rank = 0;
    std::int64_t step = 0;
  };
  [[nodiscard]] std::vector<Damaged> discard_damaged() const;
  /// True if the rank has sealed `step`, and its bytes match the digest. Reads them.
  [[nodiscard]] bool whole(std::int64_t rank, std::int64_t step) const;
  /// whole_steps() without reading the bytes; allowed while the ranks write.
  [[nodiscard]] std::vector<std::int64_t> sealed_steps() const;
  /// True if `step` is among sealed_steps().
  [[nodiscard]] bool has_sealed(std::int64_t step) const;
  /// Discards all snapshots except those of `step`; nullopt: all.
  void keep_only(std::optional<std::int64_t> step) const;
  /// Bytes of a sealed snapshot in the order of the rank's shard; empty if there is none.
  [[nodiscard]] std::span<std::byte> bytes_of(std::int64_t rank, std::int64_t step) const;
  /// Digest of a sealed snapshot, as written; nullopt: there is none.
  [[nodiscard]] std::optional<std::uint64_t> digest_of(std::int64_t rank, std::int64_t step) const;

  // Receiving a snapshot in pieces, from other memory of the same layout.

  /// Discards the rank's older snapshot, and returns the place for a new one's bytes.
  [[nodiscard]] std::span<std::byte> open(std::int64_t rank) const;
  /// Seals the complete snapshot. REQUIRES: open() was called.
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
