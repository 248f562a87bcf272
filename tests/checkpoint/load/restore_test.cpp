// What ranks of one layout wrote, ranks of any other read: the same bits, and little besides.
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/load/reader.hpp"
#include "tests/checkpoint/load/planned_state.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::checkpoint;
using train::engine::testing::all_strategies;
using train::engine::testing::name_of;
using train::engine::testing::shard_options;
using train::engine::testing::whole_matrices;
using train::test::PlannedState;
using train::test::TempDirectory;

namespace {

using Content = PlannedState::Content;

/// Bytes that this process has read, by the kernel's count.
std::uint64_t bytes_read() {
  std::FILE* file = std::fopen("/proc/self/io", "r");
  REQUIRE(file != nullptr);
  unsigned long long bytes = 0;
  const int found = std::fscanf(file, "rchar: %llu", &bytes);
  std::fclose(file);
  REQUIRE(found == 1);
  return bytes;
}

struct Traffic {
  double worst = 0.0;  ///< Of tensor bytes read / kept, by rank.
  double worst_with_headers = 0.0;
  std::uint64_t header_bytes = 0;
};

/// Restores every rank of `plan` and compares.
Traffic restore_all(const WriteOutcome& written, const PlannedState& original,
                    const engine::ShardPlan& plan) {
  Traffic traffic;
  for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
    PlannedState read(plan.units(), Content::nan);
    auto views = read.kept_views(plan, rank);
    const auto manifest = read_manifest(written.path);
    REQUIRE(manifest);
    RestoreStatistics statistics;
    const std::uint64_t before = bytes_read();
    const Status status = restore(written.path, *manifest, views,
                                  {.which = Restore::subset, .statistics = &statistics});
    const std::uint64_t counted = bytes_read() - before;
    INFO((status ? std::string() : status.error().message));
    REQUIRE(status);
    REQUIRE(test::holds(original, views));
    std::uint64_t kept = 0;
    for (const engine::StateView& view : views) {
      kept += view.size_bytes;
    }
    REQUIRE(statistics.kept_bytes == kept);
    // What restore() says of itself is what the kernel saw, but for reading the count itself.
    REQUIRE(counted >= statistics.tensor_bytes + statistics.header_bytes);
    REQUIRE(counted < statistics.tensor_bytes + statistics.header_bytes + 4096);
    if (kept > 0) {
      const auto ratio = [kept](std::uint64_t bytes) {
        return static_cast<double>(bytes) / static_cast<double>(kept);
      };
      traffic.worst = std::max(traffic.worst, ratio(statistics.tensor_bytes));
      traffic.worst_with_headers = std::max(
          traffic.worst_with_headers, ratio(statistics.tensor_bytes + statistics.header_bytes));
      traffic.header_bytes = std::max(traffic.header_bytes, statistics.header_bytes);
    }
  }
  return traffic;
}

}  // namespace

TEST_CASE("restore: ranks of any layout read what any other wrote, uneven rows included",
          "[checkpoint][.full][restore][CK-4][exhaustive]") {
  const auto layouts = all_strategies(5);
  PlannedState original(layouts.front().units, Content::random);
  int pairs = 0;
  for (const auto& writer : layouts) {
    const TempDirectory directory;
    const engine::ShardPlan plan = test::plan_with(writer);
    const auto written = test::write_planned(directory.path(), 1, original, plan);
    for (const auto& reader : layouts) {
      INFO(name_of(writer) << " read by " << name_of(reader));
      restore_all(written, original, test::plan_with(reader));
      ++pairs;
    }
  }
  std::printf("restore: %d pairs of layouts, bit for bit\n", pairs);
}

TEST_CASE("restore: what one owner wrote whole, ranks that share the rows read, and the reverse",
          "[checkpoint][.full][restore][optimizer][CK-4]") {
  const auto cut = {shard_options(1, "none"), shard_options(3, "full"),
                    shard_options(4, "hybrid", 2)};
  PlannedState original(cut.begin()->units, Content::random);
  for (auto owned : all_strategies(5)) {
    owned.whole_parameters = whole_matrices(3);
    const engine::ShardPlan plan = test::plan_with(owned);
    for (const auto& other : cut) {
      INFO(name_of(owned) << ", whole, and " << name_of(other));
      const TempDirectory directory;
      const auto whole = test::write_planned(directory.path(), 1, original, plan);
      restore_all(whole, original, test::plan_with(other));
      const auto rows = test::write_planned(directory.path(), 2, original, test::plan_with(other));
      restore_all(rows, original, plan);
    }
  }
}

TEST_CASE("restore: reads at most a tenth more than the ranks keep",
          "[checkpoint][.full][restore][CK-4]") {
  auto options = shard_options(1, "full", 0, 8);
  options.units = test::usual_units();
  options.parallel.wrapping = {"per_block"};
  PlannedState original(options.units, Content::random);
  double worst = 0;
  for (const std::int64_t writers : {1, 2, 3, 4, 5, 8}) {
    const TempDirectory directory;
    options.parallel.ranks = writers;
    const auto written =
        test::write_planned(directory.path(), 1, original, test::plan_with(options));
    std::printf(
        "restore: %d ranks wrote, manifest of %d KiB; read/kept by", static_cast<int>(writers),
        static_cast<int>(std::filesystem::file_size(written.path / kManifestFileName) >> 10));
    for (const std::int64_t readers : {1, 2, 3, 4, 5, 8}) {
      options.parallel.ranks = readers;
      const Traffic traffic = restore_all(written, original, test::plan_with(options));
      std::printf(" %d: %.3f (%.3f with headers)", static_cast<int>(readers), traffic.worst,
                  traffic.worst_with_headers);
      CHECK(traffic.worst_with_headers <= 1.1);
      worst = std::max(worst, traffic.worst);
    }
    std::printf("\n");
  }
  CHECK(worst >= 1.0);
}

TEST_CASE("restore: a checkpoint of version 1 is read whole and checked by its records",
          "[checkpoint][restore][CK-4]") {
  const TempDirectory directory;
  test::SmallState original(5);
  auto outcome = test::write_at(directory.path(), 1, original, 3);
  Manifest old = outcome.manifest;
  old.version = 1;
  for (TensorRecord& record : old.tensors) {
    record.block_bytes = 0;
    record.blocks.clear();
  }
  test::write_bytes(outcome.path / kManifestFileName, manifest_text(old));
  REQUIRE(verify_checkpoint(outcome.path)->whole());
  const auto manifest = read_manifest(outcome.path);
  REQUIRE(manifest);
  REQUIRE(manifest->version == 1);
  test::SmallState read(0);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    auto views = read.views_of(rank, 2);
    REQUIRE(restore(outcome.path, *manifest, views));
  }
  REQUIRE(read.all_values() == original.all_values());
  for (const std::string& name : test::names_in(outcome.path)) {
    const auto path = outcome.path / name;
    if (name != kManifestFileName) {
      test::flip_byte(path, std::filesystem::file_size(path) - 1);
    }
  }
  auto views = read.views();
  REQUIRE_FALSE(restore(outcome.path, *manifest, views));
}

TEST_CASE("blocks: sizes, digests and the check of a part", "[checkpoint][blocks]") {
  REQUIRE(block_size(0) == 4096);
  REQUIRE(block_size(4096) == 4096);
  REQUIRE(block_size(std::uint64_t{1} << 20) == 4096);
  REQUIRE(block_size(std::uint64_t{4} << 20) == std::uint64_t{16} << 10);
  REQUIRE(block_size(std::uint64_t{1} << 40) == kBlockLimitBytes);
  for (std::uint64_t bytes = 1; bytes < (std::uint64_t{1} << 40); bytes = bytes * 3 + 1) {
    const std::uint64_t block = block_size(bytes);
    REQUIRE(block >= 4096);
    REQUIRE(block <= kBlockLimitBytes);
    REQUIRE((block == 4096 || block == kBlockLimitBytes || bytes / block <= 256));
  }
  std::vector<std::byte> bytes(100);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 7);
  }
  TensorRecord record{.name = "a", .shape = {25}, .file = "f", .rows = 25, .block_bytes = 32};
  record.blocks = block_digests(bytes, record.block_bytes);
  REQUIRE(record.blocks.size() == 4 * 16);
  REQUIRE(blocks_defect(record).empty());
  const std::span<const std::byte> all(bytes);
  REQUIRE(blocks_match(record, 0, all));
  REQUIRE(blocks_match(record, 1, all.subspan(32, 64)));
  REQUIRE(blocks_match(record, 3, all.subspan(96)));
  REQUIRE_FALSE(blocks_match(record, 2, all.subspan(32, 32)));
  bytes[99] ^= std::byte{1};
  REQUIRE_FALSE(blocks_match(record, 3, all.subspan(96)));
  REQUIRE(blocks_match(record, 0, all.first(96)));
  record.blocks.pop_back();
  REQUIRE_FALSE(blocks_defect(record).empty());
}
