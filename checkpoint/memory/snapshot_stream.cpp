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

FrameBytes bytes_of(const SnapshotFrame& frame) {
  FrameBytes bytes;
  std::memcpy(bytes.data(), &frame, sizeof(frame));
  return bytes;
}

}  // namespace

FrameBytes layout_frame(const MemorySnapshots::Layout& layout) {
  return bytes_of({.kind = Kind::layout, .value = digest_of(layout)});
}

SnapshotOutflow::Part SnapshotOutflow::part(const SnapshotFrame& frame,
                                            std::span<const std::byte> bytes) const {
  SnapshotFrame full = frame;
  full.size_bytes = static_cast<std::uint32_t>(bytes.size());
  full.rank = rank_;
  full.step = step_;
  return {.frame = bytes_of(full), .bytes = bytes};
}

std::optional<SnapshotOutflow::Part> SnapshotOutflow::next() {
  const auto& layout = from_.layout();
  if (rank_ == layout.first_rank + static_cast<std::int64_t>(layout.shard_bytes.size())) {
    complete_ = true;
    return std::nullopt;
  }
  if (!digest_) {
    digest_ = from_.digest_of(rank_, step_);
    left_ = from_.bytes_of(rank_, step_);
    done_ = 0;
    if (!digest_ || (left_.empty() && !from_.digest_of(rank_, step_))) {
      return std::nullopt;
    }
    return part({.kind = Kind::begin});
  }
  if (done_ > 0 && from_.bytes_of(rank_, step_).empty()) {
    return std::nullopt;  // Overwritten while the last piece was sent.
  }
  if (left_.empty()) {
    const Part seal = part({.kind = Kind::seal, .value = *digest_});
    digest_.reset();
    ++rank_;
    return seal;
  }
  const auto piece = left_.first(std::min<std::size_t>(kSnapshotPiece, left_.size()));
  const Part next_piece = part({.kind = Kind::piece, .value = done_}, piece);
  left_ = left_.subspan(piece.size());
  done_ += piece.size();
  return next_piece;
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
