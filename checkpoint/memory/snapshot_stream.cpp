#include "checkpoint/memory/snapshot_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "storage/files/digest.hpp"

namespace train::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are sent as they lie in memory");

using Kind = SnapshotFrame::Kind;

std::uint64_t digest_of(const MemorySnapshots::Layout& layout) {
  std::vector<std::uint64_t> words = {static_cast<std::uint64_t>(layout.ranks), layout.plan_digest,
                                      static_cast<std::uint64_t>(layout.first_rank)};
  words.insert(words.end(), layout.shard_bytes.begin(), layout.shard_bytes.end());
  return storage::short_digest(std::as_bytes(std::span(words)));
}

Status send_frame(const SnapshotFrame& frame, const ByteSink& sink) {
  return sink(std::as_bytes(std::span(&frame, 1)));
}

/// False: written over meanwhile.
Result<bool> send_rank(const MemorySnapshots& from, std::int64_t rank, std::int64_t step,
                       const ByteSink& sink) {
  const auto digest = from.digest_of(rank, step);
  std::span<const std::byte> left = from.bytes_of(rank, step);
  if (!digest || (left.empty() && !from.digest_of(rank, step))) {
    return false;
  }
  const std::size_t all = left.size();
  TRAIN_RETURN_IF_ERROR(send_frame({.kind = Kind::begin, .rank = rank, .step = step}, sink));
  while (!left.empty()) {
    const auto size = std::min<std::size_t>(kSnapshotPiece, left.size());
    TRAIN_RETURN_IF_ERROR(send_frame({.kind = Kind::piece,
                                      .size_bytes = static_cast<std::uint32_t>(size),
                                      .rank = rank,
                                      .step = step,
                                      .value = all - left.size()},
                                     sink));
    TRAIN_RETURN_IF_ERROR(sink(left.first(size)));
    left = left.subspan(size);
    if (from.bytes_of(rank, step).empty()) {
      return false;
    }
  }
  TRAIN_RETURN_IF_ERROR(
      send_frame({.kind = Kind::seal, .rank = rank, .step = step, .value = *digest}, sink));
  return true;
}

}  // namespace

Status send_layout(const MemorySnapshots::Layout& layout, const ByteSink& sink) {
  return send_frame({.kind = Kind::layout, .value = digest_of(layout)}, sink);
}

Result<bool> send_snapshot(const MemorySnapshots& from, std::int64_t step, const ByteSink& sink) {
  const std::int64_t first = from.layout().first_rank;
  const auto count = static_cast<std::int64_t>(from.layout().shard_bytes.size());
  for (std::int64_t rank = first; rank < first + count; ++rank) {
    if (const auto sent = send_rank(from, rank, step, sink); !sent || !*sent) {
      return sent;
    }
  }
  return true;
}

Status SnapshotInflow::begin(const SnapshotFrame& frame) {
  if (frame.step < 0 || !into_.has(frame.rank)) {
    return failure(fmt::format("a snapshot of step {} of rank {}", frame.step, frame.rank));
  }
  open_ = {.rank = frame.rank, .step = frame.step, .left = into_.open(frame.rank)};
  return {};
}

Result<std::span<std::byte>> SnapshotInflow::place_of(const SnapshotFrame& piece) {
  if (!open_ || piece.rank != open_->rank || piece.step != open_->step ||
      piece.value != open_->done || piece.size_bytes > open_->left.size()) {
    return failure(fmt::format("{} bytes at {} of rank {} that nothing expects", piece.size_bytes,
                               piece.value, piece.rank));
  }
  const auto place = open_->left.first(piece.size_bytes);
  open_->left = open_->left.subspan(place.size());
  open_->done += place.size();
  return place;
}

Status SnapshotInflow::seal(const SnapshotFrame& frame) {
  if (!open_ || frame.rank != open_->rank || frame.step != open_->step || !open_->left.empty()) {
    return failure(fmt::format("a seal of rank {} that nothing expects", frame.rank));
  }
  into_.seal(frame.rank, frame.step, frame.value);
  open_.reset();
  ++sealed_count_;
  return {};
}

Result<std::span<std::byte>> SnapshotInflow::take(const FrameBytes& bytes) {
  SnapshotFrame frame;
  std::memcpy(&frame, bytes.data(), sizeof(frame));
  const bool piece = frame.kind == Kind::piece;
  if (piece ? frame.size_bytes == 0 || frame.size_bytes > kSnapshotPiece : frame.size_bytes != 0) {
    return failure(fmt::format("a part of {} bytes", frame.size_bytes));
  }
  if (!welcome_) {
    if (frame.kind != Kind::layout || frame.value != digest_of(into_.layout())) {
      return failure("snapshots of another layout");
    }
    welcome_ = true;
    return std::span<std::byte>();
  }
  if (piece) {
    return place_of(frame);
  }
  if (frame.kind != Kind::begin && frame.kind != Kind::seal) {
    return failure(fmt::format("a part of kind {}", static_cast<std::uint32_t>(frame.kind)));
  }
  TRAIN_RETURN_IF_ERROR(frame.kind == Kind::begin ? begin(frame) : seal(frame));
  return std::span<std::byte>();
}

}  // namespace train::checkpoint
