// Who has which rows of a snapshot: near ones first, each byte once, the same for everybody.
#include "checkpoint/memory/row_sources.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <random>

using namespace train;
using namespace train::checkpoint;

namespace {

constexpr std::size_t kCols = 3;
constexpr std::uint64_t kRowBytes = kCols * sizeof(float);

engine::StateView rows_of(const std::string& name, std::int64_t first, std::int64_t end) {
  return {name,        {100, kCols}, first,
          end - first, nullptr,      static_cast<std::size_t>(end - first) * kRowBytes};
}

}  // namespace

TEST_CASE("row sources: rows come from the own node if it has them",
          "[checkpoint][row_sources][CK-4]") {
  RowSources sources;
  sources.add(0, 0, 0, std::vector{rows_of("a", 0, 10), rows_of("b", 0, 4)});
  sources.add(1, 0, 0, std::vector{rows_of("b", 4, 8)});
  sources.add(2, 1, 1, std::vector{rows_of("a", 5, 20)});
  const auto far = sources.find(std::vector{rows_of("a", 2, 12)}, 0);
  REQUIRE(far);
  REQUIRE(far->size() == 2);
  CHECK(far->at(0).rank == 0);
  CHECK(far->at(0).from == 2 * kRowBytes);
  CHECK(far->at(0).size_bytes == 8 * kRowBytes);
  CHECK(far->at(1).rank == 2);
  CHECK(far->at(1).from == 5 * kRowBytes);
  CHECK(far->at(1).to == 8 * kRowBytes);
  const auto near = sources.find(std::vector{rows_of("a", 2, 12)}, 1);
  REQUIRE(near);
  REQUIRE(near->size() == 2);
  CHECK(near->at(0).rank == 2);
  CHECK(near->at(0).to == 3 * kRowBytes);
  CHECK(near->at(0).size_bytes == 7 * kRowBytes);
  CHECK(near->at(1).rank == 0);
  CHECK(near->at(1).size_bytes == 3 * kRowBytes);
  const auto second = sources.find(std::vector{rows_of("b", 3, 8)}, 5);
  REQUIRE(second);
  REQUIRE(second->size() == 2);
  CHECK(second->at(0).from == 13 * kRowBytes);  // behind the ten rows of a
  CHECK(second->at(1).rank == 1);
}

TEST_CASE("row sources: a row that nobody has is named", "[checkpoint][row_sources]") {
  RowSources sources;
  sources.add(0, 0, 0, std::vector{rows_of("a", 0, 5), rows_of("a", 6, 9)});
  const auto missing = sources.find(std::vector{rows_of("a", 1, 8)}, 0);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message == "no snapshot has row 5 of tensor a");
  CHECK_FALSE(sources.find(std::vector{rows_of("c", 0, 1)}, 0));
  CHECK_FALSE(sources.find(std::vector{rows_of("a", 8, 10)}, 0));
  CHECK(sources.find(std::vector{rows_of("a", 5, 5)}, 0));
}

TEST_CASE("row sources: of any cuts, each wanted byte comes from its row, once",
          "[checkpoint][row_sources][CK-4]") {
  std::mt19937 random(Catch::rngSeed());
  for (int round = 0; round < 300; ++round) {
    RowSources sources;
    std::vector<std::vector<std::int64_t>> shards;  // rows of each rank, in the order of its bytes
    const std::int64_t groups = 1 + random() % 3;
    for (std::int64_t group = 0; group < groups; ++group) {
      for (std::int64_t first = 0; first < 100;) {
        const auto end = std::min<std::int64_t>(100, first + 1 + random() % 60);
        const bool lost = group > 0 && random() % 3 == 0;  // the first group has all
        if (!lost) {
          sources.add(static_cast<std::int64_t>(shards.size()), group,
                      static_cast<std::int64_t>(random() % 2),
                      std::vector{rows_of("a", first, end)});
          shards.emplace_back();
          for (std::int64_t row = first; row < end; ++row) {
            shards.back().push_back(row);
          }
        }
        first = end;
      }
    }
    const auto first = static_cast<std::int64_t>(random() % 100);
    const auto end = first + 1 + static_cast<std::int64_t>(random() % (100 - first));
    const auto pieces = sources.find(std::vector{rows_of("a", first, end)}, 0);
    REQUIRE(pieces);
    std::vector<int> times(static_cast<std::size_t>(end - first));
    for (const RowPiece& piece : *pieces) {
      const auto& shard = shards[static_cast<std::size_t>(piece.rank)];
      for (std::uint64_t at = 0; at < piece.size_bytes; at += kRowBytes) {
        const auto row = static_cast<std::size_t>((piece.to + at) / kRowBytes);
        ++times[row];
        REQUIRE(shard[(piece.from + at) / kRowBytes] == first + static_cast<std::int64_t>(row));
      }
    }
    CHECK(times == std::vector<int>(times.size(), 1));
  }
}
