// Snapshots in memory on their way to another node's: whole at the other end or not there.
#include "checkpoint/memory/snapshot_stream.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

using namespace train;
using namespace train::checkpoint;

namespace {

using Bytes = std::vector<std::byte>;
using Steps = std::vector<std::int64_t>;

constexpr std::int64_t kFirst = 2;

MemorySnapshots memory_of(const std::vector<std::uint64_t>& shard_bytes, std::uint64_t plan = 7) {
  auto made = MemorySnapshots::create(
      {.ranks = 6, .plan_digest = plan, .first_rank = kFirst, .shard_bytes = shard_bytes});
  REQUIRE(made.ok());
  return std::move(made).value();
}

/// The ranks' states at a step: every byte of a rank is `fill` + rank.
void write(const MemorySnapshots& memory, std::int64_t step, int fill) {
  for (std::size_t i = 0; i < memory.layout().shard_bytes.size(); ++i) {
    const auto rank = kFirst + static_cast<std::int64_t>(i);
    Bytes state(memory.layout().shard_bytes[i], static_cast<std::byte>(fill + rank));
    const auto rows = static_cast<std::int64_t>(state.size());
    memory.write(rank, step,
                 std::vector{engine::StateView{"w", {rows}, 0, rows, state.data(), state.size()}});
  }
}

bool same(const MemorySnapshots& left, const MemorySnapshots& right, std::int64_t step) {
  for (std::size_t i = 0; i < left.layout().shard_bytes.size(); ++i) {
    const auto rank = kFirst + static_cast<std::int64_t>(i);
    const auto a = left.bytes_of(rank, step);
    const auto b = right.bytes_of(rank, step);
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) {
      return false;
    }
  }
  return true;
}

void append(Bytes& stream, std::span<const std::byte> bytes) {
  stream.insert(stream.end(), bytes.begin(), bytes.end());
}

/// `before_part` is called with the number of each part, from 1. False: not complete.
template <class BeforePart>
bool send(Bytes& stream, const MemorySnapshots& from, std::int64_t step, BeforePart before_part) {
  SnapshotOutflow outflow(from, step);
  for (std::size_t number = 1;; ++number) {
    before_part(number);
    const auto part = outflow.next();
    if (!part) {
      return outflow.complete();
    }
    append(stream, part->frame);
    append(stream, part->bytes);
  }
}

Bytes stream_of(const MemorySnapshots& from, std::int64_t step) {
  Bytes stream;
  append(stream, layout_frame(from.layout()));
  REQUIRE(send(stream, from, step, [](std::size_t) {}));
  return stream;
}

/// Reads as far as the stream goes; false: it was refused.
bool read(std::span<const std::byte> stream, const MemorySnapshots& memory) {
  SnapshotInflow inflow(memory);
  while (stream.size() >= sizeof(FrameBytes)) {
    FrameBytes frame;
    std::memcpy(frame.data(), stream.data(), frame.size());
    stream = stream.subspan(frame.size());
    const auto place = inflow.take(frame);
    if (!place) {
      return false;
    }
    const std::size_t size = std::min(place->size(), stream.size());
    std::copy_n(stream.begin(), size, place->begin());
    stream = stream.subspan(size);
  }
  return true;
}

std::vector<std::uint64_t> some_shards() { return {1, 3 * kSnapshotPiece + 17, kSnapshotPiece, 0}; }

}  // namespace

TEST_CASE("snapshot stream: what was sealed at one end is sealed at the other",
          "[checkpoint][snapshot_stream][CK-10]") {
  const MemorySnapshots from = memory_of(some_shards());
  const MemorySnapshots to = memory_of(some_shards());
  for (const std::int64_t step : {10, 20, 30}) {
    write(from, step, static_cast<int>(step));
    REQUIRE(read(stream_of(from, step), to));
    CHECK(same(from, to, step));
  }
  CHECK(to.whole_steps() == Steps{30, 20});
  REQUIRE(read(stream_of(from, 30), to));  // after a connection was lost
  CHECK(to.whole_steps() == Steps{30});
}

TEST_CASE("snapshot stream: cut anywhere it leaves the snapshot before",
          "[checkpoint][snapshot_stream][CK-10]") {
  const MemorySnapshots from = memory_of({100, 1, 50});
  write(from, 10, 1);
  const Bytes first = stream_of(from, 10);
  write(from, 20, 2);
  const Bytes second = stream_of(from, 20);
  const MemorySnapshots to = memory_of({100, 1, 50});
  for (std::size_t size = 0; size < second.size(); ++size) {
    to.keep_only(std::nullopt);
    REQUIRE(read(first, to));
    REQUIRE(read(std::span(second).first(size), to));
    REQUIRE(to.whole_steps() == Steps{10});
  }
}

TEST_CASE("snapshot stream: what a rank writes over is not sealed",
          "[checkpoint][snapshot_stream][CK-10]") {
  const MemorySnapshots from = memory_of({2 * kSnapshotPiece, 5});
  const MemorySnapshots to = memory_of({2 * kSnapshotPiece, 5});
  write(from, 10, 1);
  write(from, 20, 2);
  const std::size_t when = GENERATE(1U, 2U, 3U, 4U);  // begin, two pieces, seal
  Bytes stream;
  append(stream, layout_frame(from.layout()));
  CHECK_FALSE(send(stream, from, 10, [&](std::size_t number) {
    if (number == when) {
      write(from, 30, 3);
    }
  }));
  REQUIRE(read(stream, to));
  CHECK(to.whole_steps().empty());
  CHECK_FALSE(send(stream, from, 10, [](std::size_t) {}));
}

TEST_CASE("snapshot stream: a piece that is missing or comes early is refused",
          "[checkpoint][snapshot_stream][CK-10][failure]") {
  constexpr std::size_t kFrame = sizeof(FrameBytes);
  constexpr std::size_t kPart = kFrame + kSnapshotPiece;  // with the bytes of a piece
  const MemorySnapshots from = memory_of({2 * kSnapshotPiece});
  write(from, 10, 1);
  const Bytes good = stream_of(from, 10);
  REQUIRE(good.size() == 3 * kFrame + 2 * kPart);  // layout, begin, two pieces, seal
  const auto first = good.begin() + static_cast<std::ptrdiff_t>(2 * kFrame);
  const auto second = first + static_cast<std::ptrdiff_t>(kPart);
  Bytes bad;
  SECTION("the first is missing") {
    bad.assign(good.begin(), first);
    bad.insert(bad.end(), second, good.end());
  }
  SECTION("the second is missing") {
    bad.assign(good.begin(), second);
    bad.insert(bad.end(), second + static_cast<std::ptrdiff_t>(kPart), good.end());
  }
  SECTION("the second comes first") {
    bad = good;
    std::rotate(bad.begin() + (first - good.begin()), bad.begin() + (second - good.begin()),
                bad.end() - static_cast<std::ptrdiff_t>(kFrame));
  }
  const MemorySnapshots to = memory_of({2 * kSnapshotPiece});
  CHECK_FALSE(read(bad, to));
  CHECK(to.sealed_steps().empty());
}

TEST_CASE("snapshot stream: another layout is refused", "[checkpoint][snapshot_stream][failure]") {
  const MemorySnapshots from = memory_of({100, 100});
  write(from, 10, 1);
  const Bytes stream = stream_of(from, 10);
  CHECK(read(stream, memory_of({100, 100})));
  CHECK_FALSE(read(stream, memory_of({100, 101})));
  CHECK_FALSE(read(stream, memory_of({100})));
  CHECK_FALSE(read(stream, memory_of({100, 100}, 8)));
  CHECK_FALSE(read(std::span(stream).subspan(sizeof(FrameBytes)), memory_of({100, 100})));
}

TEST_CASE("snapshot stream: changed bytes are refused, or found by the digest",
          "[checkpoint][snapshot_stream][CK-10][failure]") {
  std::mt19937 random(Catch::rngSeed());
  const MemorySnapshots from = memory_of({300, 40});
  write(from, 10, 1);
  const Bytes good = stream_of(from, 10);
  const MemorySnapshots to = memory_of({300, 40});
  for (int i = 0; i < 20'000; ++i) {
    Bytes bad = good;
    for (unsigned changes = 0; changes <= random() % 3; ++changes) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] ^= static_cast<std::byte>(1U << (random() % 8));
          break;
        case 1:
          bad[at] = static_cast<std::byte>(random());
          break;
        case 2:
          bad.erase(bad.begin() + static_cast<std::ptrdiff_t>(at));
          break;
        default:
          bad.insert(bad.begin() + static_cast<std::ptrdiff_t>(at),
                     static_cast<std::byte>(random()));
      }
    }
    to.keep_only(std::nullopt);
    const bool taken = read(bad, to);
    for (const std::int64_t step : to.whole_steps()) {
      REQUIRE((taken || step == 10));
      REQUIRE(to.bytes_of(kFirst, step).size() == 300);
      const auto sent = from.bytes_of(kFirst, 10);
      const auto came = to.bytes_of(kFirst, step);
      REQUIRE(std::equal(sent.begin(), sent.end(), came.begin()));
    }
  }
}
