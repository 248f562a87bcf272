#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"

// Byte stream of snapshots from one node's memory to another of the same layout: the layout's
// digest, then for each rank a beginning, its bytes in pieces, and a seal.
namespace train::checkpoint {

/// Header of every part: little-endian, in memory layout.
struct SnapshotFrame {
  enum class Kind : std::uint32_t { layout = 1, begin = 2, piece = 3, seal = 4 };
  Kind kind = Kind::layout;
  std::uint32_t size_bytes = 0;  ///< Bytes that follow this frame; only for a piece.
  std::int64_t rank = 0;
  std::int64_t step = 0;
  std::uint64_t value = 0;  ///< Digest of the layout or of the shard, or a piece's first byte.
};
using FrameBytes = std::array<std::byte, sizeof(SnapshotFrame)>;
static_assert(sizeof(SnapshotFrame) == 32);

/// Largest piece: bounds the data in transit without a place.
inline constexpr std::uint32_t kSnapshotPiece = std::uint32_t{256} << 10;

/// First frame of a stream of snapshots of `layout`.
[[nodiscard]] FrameBytes layout_frame(const MemorySnapshots::Layout& layout);

/// Sending end: what all ranks of `from` have sealed after `step` steps, part by part. Ranks may
/// write meanwhile.
///
/// Threading: one thread. Ownership: `from` outlives this object.
class SnapshotOutflow {
 public:
  SnapshotOutflow(const MemorySnapshots& from, std::int64_t step)
      : from_(from), rank_(from.layout().first_rank), step_(step) {}

  struct Part {
    FrameBytes frame = {};
    std::span<const std::byte> bytes = {};  ///< To be sent after the frame.
  };
  /// Next part; nullopt: complete(), or a rank has begun to overwrite it, and its seal was not
  /// sent.
  [[nodiscard]] std::optional<Part> next();
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  [[nodiscard]] Part part(const SnapshotFrame& frame, std::span<const std::byte> bytes = {}) const;

  const MemorySnapshots& from_;
  std::int64_t rank_;
  std::int64_t step_;
  std::optional<std::uint64_t> digest_;  // Digest of the rank being sent.
  std::span<const std::byte> left_;      // Rest of its bytes.
  std::uint64_t done_ = 0;
  bool complete_ = false;
};

/// Receiving end: gives the places for the bytes of a stream, and seals complete snapshots (CK-10).
/// For any input, nothing outside an open slot is written.
///
/// Threading: only the one thread that writes to `into`, which must outlive this object.
class SnapshotInflow {
 public:
  explicit SnapshotInflow(const MemorySnapshots& into) : into_(into) {}

  /// Takes the next frame; returns the place of the bytes that follow it. REQUIRES: the bytes of
  /// the previous frame are complete. Errors (failure): another layout, or a violation of the
  /// format; the stream cannot continue.
  [[nodiscard]] Result<std::span<std::byte>> take(const FrameBytes& bytes);

 private:
  struct Open {
    std::int64_t rank = 0;
    std::int64_t step = 0;
    std::span<std::byte> left;  // Rest of the slot.
    std::uint64_t done = 0;
  };
  [[nodiscard]] Status begin(const SnapshotFrame& frame);
  [[nodiscard]] Result<std::span<std::byte>> place_of(const SnapshotFrame& piece);
  [[nodiscard]] Status seal(const SnapshotFrame& frame);

  const MemorySnapshots& into_;
  bool welcome_ = false;  // The layout has arrived, and matches.
  std::optional<Open> open_;
};

}  // namespace train::checkpoint
