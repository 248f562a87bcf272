#include "engine/rank/exec/totals/source_sums.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/rank/exec/rank_memory.hpp"
#include "tests/support/runs/plain_run.hpp"

namespace train::engine {
namespace {

constexpr std::int64_t kSources = 3;
constexpr std::int64_t kLength = 16;

RankOptions options_of(std::int64_t ranks, std::int64_t sources = kSources) {
  test::RunSetup setup;
  setup.parallel = test::split_over(ranks, ranks == 1 ? "none" : "full");
  RankOptions options = test::engine_options(setup);
  options.sources = sources;
  return options;
}

/// Fills a lane whose rows are of sources that step, lane and row decide; lane 2 has padding.
/// `alone`: only the targets of that source; -1: all.
WorldStep::FillLane rows_of(std::int32_t alone = -1) {
  return [alone](std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    std::mt19937 random(static_cast<unsigned>(100 * step + lane));
    for (std::size_t i = 0; i < slot.tokens.size(); ++i) {
      slot.tokens[i] = static_cast<std::int32_t>(random() % 64);
      slot.targets[i] = i % 5 == 0 ? -1 : static_cast<std::int32_t>(random() % 64);
      const std::size_t row = i / kLength;
      const auto source = static_cast<std::int32_t>((step + 2 * lane + static_cast<int>(row)) % 2);
      const bool padding = lane == 2 && row == 1;
      if (i % kLength == 0 && !slot.sources.empty()) {
        slot.sources[row] = padding ? -1 : source;
      }
      if (padding || (alone >= 0 && source != alone)) {
        slot.targets[i] = -1;
      }
    }
  };
}

}  // namespace

TEST_CASE("source sums: the loss of each source is that of its rows alone",
          "[engine][source_sums]") {
  WorldStep world(kernels::cpu_backend(), options_of(1));
  const auto stream = kernels::make_inline_stream(1);
  const EvaluationResult all = world.evaluate(*stream, rows_of());
  REQUIRE(all.metrics.size() == kSources);
  double sum = 0.0;
  for (std::int32_t source = 0; source < 2; ++source) {
    const EvaluationResult alone = world.evaluate(*stream, rows_of(source));
    CHECK(all.metrics[static_cast<std::size_t>(source)] == Approx(alone.cross_entropy));
    CHECK(std::isnan(alone.metrics[static_cast<std::size_t>(1 - source)]));
    sum += alone.cross_entropy * alone.targets;
  }
  CHECK(sum / all.targets == Approx(all.cross_entropy));
  CHECK(std::isnan(all.metrics[2]));  // No row is of the third.
}

TEST_CASE("source sums: the same bits at any number of ranks, and no other bit of a step",
          "[engine][source_sums][P1]") {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep plain(kernels::cpu_backend(), options_of(1, /*sources=*/0));
  WorldStep one(kernels::cpu_backend(), options_of(1));
  std::vector<StepResult> expected;
  for (std::int64_t step = 0; step < 3; ++step) {
    expected.push_back(one.run(*stream, step, rows_of()));
    const StepResult without = plain.run(*stream, step, rows_of());
    CHECK(std::bit_cast<std::uint64_t>(without.loss) ==
          std::bit_cast<std::uint64_t>(expected.back().loss));
    CHECK(without.metrics.empty());
  }
  CHECK(plain.digest() == one.digest());
  for (const std::int64_t ranks : {2, 3, 4}) {
    WorldStep world(kernels::cpu_backend(), options_of(ranks));
    for (std::int64_t step = 0; step < 3; ++step) {
      const StepResult result = world.run(*stream, step, rows_of());
      const StepResult& wanted = expected[static_cast<std::size_t>(step)];
      for (std::size_t source = 0; source < 2; ++source) {
        CHECK(std::bit_cast<std::uint64_t>(result.metrics[source]) ==
              std::bit_cast<std::uint64_t>(wanted.metrics[source]));
      }
    }
    CHECK(world.digest() == one.digest());
  }
}

TEST_CASE("source sums: their memory is planned", "[engine][source_sums]") {
  const RankOptions options = options_of(1);
  const WorldStep world(kernels::cpu_backend(), options);
  CHECK(plan_memory(options).buffers_bytes == world.rank(0).allocated().buffers_bytes);
}

}  // namespace train::engine
