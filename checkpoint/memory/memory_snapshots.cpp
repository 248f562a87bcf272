#include "checkpoint/memory/memory_snapshots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.hpp"
#include "storage/files/digest.hpp"

namespace train::checkpoint {
namespace {

constexpr std::uint64_t kMagic = 0x3154'5358'454d'5441;  // Identifies this memory layout.
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPiece = std::uint64_t{256} << 10;  // Copied and digested while in cache.
constexpr int kSlots = MemorySnapshots::kSlots;

struct Header {
  std::uint64_t magic = kMagic;
  std::int64_t ranks = 0;
  std::uint64_t plan_digest = 0;
  std::int64_t first_rank = 0;
  std::uint64_t count = 0;  // Number of this node's ranks; their shards' bytes follow.
};

/// One per slot. `sealed` is the step + 1, 0 if there is no snapshot: written last, and cleared
/// first when the next one begins.
struct Seal {
  std::uint64_t sealed = 0;
  std::uint64_t digest = 0;
};

std::uint64_t pages(std::uint64_t size_bytes) { return (size_bytes + kPage - 1) / kPage * kPage; }

std::uint64_t header_bytes(std::uint64_t count) {
  return pages(sizeof(Header) + count * (sizeof(std::uint64_t) + kSlots * sizeof(Seal)));
}

std::uint64_t largest_shard(const MemorySnapshots::Layout& layout) {
  std::uint64_t largest = 1;
  for (const std::uint64_t shard : layout.shard_bytes) {
    largest = std::max(largest, shard);
  }
  return pages(largest);
}

/// Digest of a shard, computed piece by piece.
class PieceDigest {
 public:
  void update(std::span<const std::byte> piece) {
    const std::array<std::uint64_t, 2> chain = {value_, storage::short_digest(piece)};
    value_ = storage::short_digest(std::as_bytes(std::span(chain)));
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = kMagic;
};

std::uint64_t digest_of_bytes(std::span<const std::byte> bytes) {
  PieceDigest digest;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min<std::uint64_t>(kPiece, bytes.size()))) {
    digest.update(bytes.first(std::min<std::uint64_t>(kPiece, bytes.size())));
  }
  return digest.value();
}

/// Copies the views to `to`, one after the other; returns the digest of the result.
std::uint64_t copy_views(std::span<const engine::StateView> views, std::span<std::byte> to) {
  PieceDigest digest;
  std::uint64_t done = 0;      // Bytes copied,
  std::uint64_t digested = 0;  // and digested, in whole pieces.
  for (const engine::StateView& view : views) {
    for (std::uint64_t at = 0; at < view.size_bytes;) {
      const std::uint64_t size = std::min(view.size_bytes - at, digested + kPiece - done);
      std::memcpy(to.data() + done, view.data + at, size);
      at += size;
      done += size;
      if (done == digested + kPiece) {
        digest.update(to.subspan(digested, kPiece));
        digested = done;
      }
    }
  }
  if (digested < done) {
    digest.update(to.subspan(digested, done - digested));
  }
  return digest.value();
}

}  // namespace

struct MemorySnapshots::Slot {
  Seal* seal = nullptr;
  std::span<std::byte> bytes;

  [[nodiscard]] std::int64_t step() const {
    return static_cast<std::int64_t>(
               std::atomic_ref(seal->sealed).load(std::memory_order_acquire)) -
           1;
  }
  [[nodiscard]] bool whole() const { return digest_of_bytes(bytes) == seal->digest; }
  void open() const {
    std::atomic_ref(seal->sealed).store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);  // Ordered before the first byte changes.
  }
  void close(std::int64_t step, std::uint64_t digest) const {
    seal->digest = digest;
    std::atomic_ref(seal->sealed)
        .store(static_cast<std::uint64_t>(step) + 1, std::memory_order_release);
  }
};

MemorySnapshots::MemorySnapshots(storage::SharedMemory memory, Layout layout)
    : memory_(std::move(memory)), layout_(std::move(layout)), slot_bytes_(largest_shard(layout_)) {}

std::uint64_t MemorySnapshots::size_bytes(const Layout& layout) {
  const std::uint64_t count = layout.shard_bytes.size();
  return header_bytes(count) + count * kSlots * largest_shard(layout);
}

Result<MemorySnapshots> MemorySnapshots::create(const Layout& layout) {
  auto memory =
      TRAIN_TRY(storage::SharedMemory::create("actortrain-snapshots", size_bytes(layout)));
  const Header header{.ranks = layout.ranks,
                      .plan_digest = layout.plan_digest,
                      .first_rank = layout.first_rank,
                      .count = layout.shard_bytes.size()};
  std::byte* const to = memory.bytes().data();
  std::memcpy(to, &header, sizeof(header));
  std::memcpy(to + sizeof(header), layout.shard_bytes.data(), header.count * sizeof(std::uint64_t));
  return MemorySnapshots(std::move(memory), layout);
}

Result<MemorySnapshots> MemorySnapshots::attach(int descriptor) {
  auto memory = TRAIN_TRY(storage::SharedMemory::attach(descriptor));
  const std::span<const std::byte> bytes = memory.bytes();
  const Error other = failure(fmt::format("descriptor {} holds no snapshots", descriptor));
  Header header;
  if (bytes.size() < sizeof(header)) {
    return other;
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic || header.count > bytes.size() / kPage) {
    return other;
  }
  Layout layout{.ranks = header.ranks,
                .plan_digest = header.plan_digest,
                .first_rank = header.first_rank,
                .shard_bytes = std::vector<std::uint64_t>(header.count)};
  std::memcpy(layout.shard_bytes.data(), bytes.data() + sizeof(header),
              header.count * sizeof(std::uint64_t));
  if (size_bytes(layout) != bytes.size()) {
    return other;
  }
  return MemorySnapshots(std::move(memory), std::move(layout));
}

bool MemorySnapshots::has(std::int64_t rank) const {
  return rank >= layout_.first_rank &&
         rank < layout_.first_rank + static_cast<std::int64_t>(layout_.shard_bytes.size());
}

MemorySnapshots::Slot MemorySnapshots::slot(std::int64_t rank, int number) const {
  TRAIN_CHECK(has(rank), "rank {} has no snapshots here", rank);
  const std::uint64_t count = layout_.shard_bytes.size();
  const auto local = static_cast<std::uint64_t>(rank - layout_.first_rank);
  const std::uint64_t index = local * kSlots + static_cast<std::uint64_t>(number);
  const std::span<std::byte> bytes = memory_.bytes();
  std::byte* const seals = bytes.data() + sizeof(Header) + count * sizeof(std::uint64_t);
  return {.seal = reinterpret_cast<Seal*>(seals) + index,
          .bytes =
              bytes.subspan(header_bytes(count) + index * slot_bytes_, layout_.shard_bytes[local])};
}

void MemorySnapshots::write(std::int64_t rank, std::int64_t step,
                            std::span<const engine::StateView> shard) const {
  if (sealed_slot(rank, step)) {
    return;
  }
  std::uint64_t size = 0;
  for (const engine::StateView& view : shard) {
    size += view.size_bytes;
  }
  const Slot older = older_slot(rank);
  TRAIN_CHECK(size == older.bytes.size(), "rank {}: a shard of {} bytes, planned were {}", rank,
              size, older.bytes.size());
  older.open();
  older.close(step, copy_views(shard, older.bytes));
}

/// Steps that every rank has sealed in a slot that is `good`, newest first.
template <class Good>
std::vector<std::int64_t> MemorySnapshots::steps_where(Good good) const {
  std::vector<std::int64_t> steps;
  const auto end = layout_.first_rank + static_cast<std::int64_t>(layout_.shard_bytes.size());
  for (int number = 0; number < kSlots && !layout_.shard_bytes.empty(); ++number) {
    const std::int64_t step = slot(layout_.first_rank, number).step();
    bool everywhere = step >= 0;
    for (std::int64_t rank = layout_.first_rank; everywhere && rank < end; ++rank) {
      const auto found = sealed_slot(rank, step);
      everywhere = found && good(*found);
    }
    if (everywhere) {
      steps.push_back(step);
    }
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  return steps;
}

std::vector<std::int64_t> MemorySnapshots::whole_steps() const {
  return steps_where([](const Slot& found) { return found.whole(); });
}

std::vector<std::int64_t> MemorySnapshots::sealed_steps() const {
  return steps_where([](const Slot&) { return true; });
}

bool MemorySnapshots::has_sealed(std::int64_t step) const {
  const auto steps = sealed_steps();
  return std::find(steps.begin(), steps.end(), step) != steps.end();
}

std::vector<MemorySnapshots::Damaged> MemorySnapshots::discard_damaged() const {
  std::vector<Damaged> damaged;
  const auto end = layout_.first_rank + static_cast<std::int64_t>(layout_.shard_bytes.size());
  for (std::int64_t rank = layout_.first_rank; rank < end; ++rank) {
    for (int number = 0; number < kSlots; ++number) {
      const Slot found = slot(rank, number);
      if (found.step() >= 0 && !found.whole()) {
        damaged.push_back({.rank = rank, .step = found.step()});
        found.open();
      }
    }
  }
  return damaged;
}

bool MemorySnapshots::whole(std::int64_t rank, std::int64_t step) const {
  const auto found = sealed_slot(rank, step);
  return found && found->whole();
}

void MemorySnapshots::keep_only(std::optional<std::int64_t> step) const {
  const auto end = layout_.first_rank + static_cast<std::int64_t>(layout_.shard_bytes.size());
  for (std::int64_t rank = layout_.first_rank; rank < end; ++rank) {
    for (int number = 0; number < kSlots; ++number) {
      if (const Slot found = slot(rank, number); found.step() != step) {
        found.open();
      }
    }
  }
}

std::optional<MemorySnapshots::Slot> MemorySnapshots::sealed_slot(std::int64_t rank,
                                                                  std::int64_t step) const {
  for (int number = 0; number < kSlots; ++number) {
    if (const Slot found = slot(rank, number); found.step() == step) {
      return found;
    }
  }
  return std::nullopt;
}

std::span<std::byte> MemorySnapshots::bytes_of(std::int64_t rank, std::int64_t step) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // Ordered after the reads of those bytes.
  const auto found = sealed_slot(rank, step);
  return found ? found->bytes : std::span<std::byte>();
}

std::optional<std::uint64_t> MemorySnapshots::digest_of(std::int64_t rank,
                                                        std::int64_t step) const {
  const auto found = sealed_slot(rank, step);
  return found ? std::optional(found->seal->digest) : std::nullopt;
}

MemorySnapshots::Slot MemorySnapshots::older_slot(std::int64_t rank) const {
  const Slot first = slot(rank, 0);
  const Slot second = slot(rank, 1);
  return first.step() <= second.step() ? first : second;
}

std::span<std::byte> MemorySnapshots::open(std::int64_t rank) const {
  const Slot older = older_slot(rank);
  older.open();
  return older.bytes;
}

void MemorySnapshots::seal(std::int64_t rank, std::int64_t step, std::uint64_t digest) const {
  const Slot opened = older_slot(rank);
  TRAIN_CHECK(opened.step() < 0, "rank {}: no slot is open", rank);
  opened.close(step, digest);
}

}  // namespace train::checkpoint
