#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"

// Snapshots in memory as a stream of bytes from one node's memory to another of the same layout:
// the layout's digest, then for each rank a beginning, its bytes in pieces, and a seal.
namespace train::checkpoint {

/// What every part begins with: little-endian, as it lies in memory.
struct SnapshotFrame {
  enum class Kind : std::uint32_t { layout = 1, begin = 2, piece = 3, seal = 4 };
  Kind kind = Kind::layout;
  std::uint32_t size_bytes = 0;  ///< That follow this frame: of a piece alone.
  std::int64_t rank = 0;
  std::int64_t step = 0;
  std::uint64_t value = 0;  ///< Digest of the layout or of the shard; a piece's first byte.
};
using FrameBytes = std::array<std::byte, sizeof(SnapshotFrame)>;
static_assert(sizeof(SnapshotFrame) == 32);

/// Of a piece, at most: all that is ever under way without having its place.
inline constexpr std::uint32_t kSnapshotPiece = std::uint32_t{256} << 10;

/// What begins a stream of snapshots of `layout`.
[[nodiscard]] FrameBytes layout_frame(const MemorySnapshots::Layout& layout);

/// The sending end: what all ranks of `from` have sealed after `step` steps, part by part. Ranks
/// may write meanwhile.
///
/// Threading: one thread. Ownership: `from` outlives this.
class SnapshotOutflow {
 public:
  SnapshotOutflow(const MemorySnapshots& from, std::int64_t step)
      : from_(from), rank_(from.layout().first_rank), step_(step) {}

  struct Part {
    FrameBytes frame = {};
    std::span<const std::byte> bytes = {};  ///< To be sent after it.
  };
  /// The next part; none: complete(), or a rank has begun to write over it, and its seal was not
  /// sent.
  [[nodiscard]] std::optional<Part> next();
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  [[nodiscard]] Part part(const SnapshotFrame& frame, std::span<const std::byte> bytes = {}) const;

  const MemorySnapshots& from_;
  std::int64_t rank_;
  std::int64_t step_;
  std::optional<std::uint64_t> digest_;  // of the rank that has begun
  std::span<const std::byte> left_;      // of its bytes
  std::uint64_t done_ = 0;
  bool complete_ = false;
};

/// The other end: says where the bytes of a stream go, and seals what is whole (CK-10). Whatever
/// comes, nothing outside an open slot is written.
///
/// Threading: of the one thread that writes to `into`, which has to outlive this.
class SnapshotInflow {
 public:
  explicit SnapshotInflow(const MemorySnapshots& into) : into_(into) {}

  /// Takes the next frame; the bytes that follow it go into what is returned. REQUIRES: those of
  /// the frame before are all there. Errors (failure): of another layout, or not as send_snapshot()
  /// sends it; the stream cannot go on.
  [[nodiscard]] Result<std::span<std::byte>> take(const FrameBytes& bytes);

 private:
  struct Open {
    std::int64_t rank = 0;
    std::int64_t step = 0;
    std::span<std::byte> left;  // of the slot, not taken yet
    std::uint64_t done = 0;
  };
  [[nodiscard]] Status begin(const SnapshotFrame& frame);
  [[nodiscard]] Result<std::span<std::byte>> place_of(const SnapshotFrame& piece);
  [[nodiscard]] Status seal(const SnapshotFrame& frame);

  const MemorySnapshots& into_;
  bool welcome_ = false;  // the layout has come, and fits
  std::optional<Open> open_;
};

}  // namespace train::checkpoint
