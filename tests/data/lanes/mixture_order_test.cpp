#include "data/lanes/mixture_order.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

namespace train::data {
namespace {

using Counts = std::vector<std::uint64_t>;

MixtureOrder::Options options_of(Counts rows, Counts weights) {
  std::vector<std::size_t> sources(weights.size());
  std::iota(sources.begin(), sources.end(), std::size_t{0});
  return {.seed = 5,
          .lanes = 4,
          .micro_batch = 2,
          .rows = std::move(rows),
          .stages = {{.from_step = 0, .sources = sources, .weights = std::move(weights)}}};
}

/// Calls `each` with every draw of a step.
template <class Each>
void draws_of(const MixtureOrder& order, const MixtureOrder::Options& options, std::uint64_t step,
              const Each& each) {
  for (std::uint64_t lane = 0; lane < options.lanes; ++lane) {
    for (std::uint64_t row = 0; row < options.micro_batch; ++row) {
      each(order.draw(step, lane, row));
    }
  }
}

/// Weights up to `most`, with common divisors as whole_weights() has none.
Counts random_weights(std::mt19937_64& random, std::size_t sources, std::uint64_t most) {
  Counts weights;
  for (std::size_t i = 0; i < sources; ++i) {
    weights.push_back(1 + random() % most);
  }
  return weights;
}

}  // namespace

TEST_CASE("mixture order: a block has the share of each source, exact to one row",
          "[data][mixture][ST-11]") {
  std::mt19937_64 random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  for (int round = 0; round < 60; ++round) {
    const std::size_t sources = 1 + random() % 6;
    const Counts weights = random_weights(random, sources, round % 2 == 0 ? 9 : 1 << 20);
    const auto parts = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
    auto options = options_of(Counts(sources, 7), weights);
    options.lanes = 1 + random() % 7;
    options.micro_batch = 1 + random() % 5;
    const MixtureOrder order(options);
    Counts sum(sources);
    for (std::uint64_t step = 0; step < 200; ++step) {
      Counts found(sources);
      draws_of(order, options, step, [&](const MixtureOrder::Draw& draw) { ++found[draw.source]; });
      for (std::size_t i = 0; i < sources; ++i) {
        const std::uint64_t whole = order.block_rows() * weights[i] / parts;
        CHECK(found[i] >= whole);
        CHECK(found[i] <= whole + 1);
        CHECK(order.drawn(i, step) == sum[i]);
        sum[i] += found[i];
      }
    }
    // As many blocks as there are parts have the weights' exact ratios.
    for (std::size_t i = 0; i < sources; ++i) {
      CHECK(order.drawn(i, parts) == order.block_rows() * weights[i]);
      CHECK(order.drawn(i, 3 * parts) == 3 * order.block_rows() * weights[i]);
    }
  }
}

TEST_CASE("mixture order: the shares of a few blocks are near the weights, too",
          "[data][mixture][ST-11]") {
  // Weights without a common divisor: the exact period is a million blocks.
  const auto options = options_of({10, 10, 10}, {500001, 299999, 199999});
  const MixtureOrder order(options);
  for (const std::uint64_t blocks : {10U, 100U, 1000U, 100000U}) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double wanted = static_cast<double>(blocks * order.block_rows()) *
                            static_cast<double>(options.stages[0].weights[i]) / 999999.0;
      CHECK(std::abs(static_cast<double>(order.drawn(i, blocks)) - wanted) < 6.0);
    }
  }
}

TEST_CASE("mixture order: kills and other numbers of ranks read each row as often as planned",
          "[data][mixture][ST-11][P1]") {
  std::mt19937_64 random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  const Counts rows = {101, 67, 13};
  const auto options = options_of(rows, {5, 3, 1});
  constexpr std::uint64_t kSteps = 400;
  std::vector<Counts> read;
  for (const std::uint64_t count : rows) {
    read.emplace_back(count);
  }
  // Each start reads on from the newest checkpoint, by a new object, with its lanes dealt out anew.
  std::uint64_t saved = 0;
  for (int kill = 0; saved < kSteps; ++kill) {
    const MixtureOrder order(options);
    const std::uint64_t ranks = 1 + random() % options.lanes;
    const std::uint64_t killed = kill < 200 ? saved + random() % 5 : kSteps;
    const std::uint64_t last = std::min(kSteps, std::max(saved, killed));
    for (std::uint64_t step = saved; step < last; ++step) {
      for (std::uint64_t rank = 0; rank < ranks; ++rank) {
        for (std::uint64_t lane = rank; lane < options.lanes; lane += ranks) {
          for (std::uint64_t row = 0; row < options.micro_batch; ++row) {
            const MixtureOrder::Draw draw = order.draw(step, lane, row);
            ++read[draw.source][draw.row];
          }
        }
      }
    }
    saved = last;
  }
  const MixtureOrder order(options);
  for (std::size_t source = 0; source < rows.size(); ++source) {
    const std::uint64_t drawn = order.drawn(source, kSteps);
    CHECK(std::accumulate(read[source].begin(), read[source].end(), std::uint64_t{0}) == drawn);
    Counts planned(rows[source]);
    for (std::uint64_t number = 0; number < drawn; ++number) {
      ++planned[order.row_of(source, number)];
    }
    CHECK(read[source] == planned);
    const auto [least, most] = std::ranges::minmax_element(planned);
    CHECK(*least == drawn / rows[source]);
    CHECK(*most == (drawn + rows[source] - 1) / rows[source]);
  }
}

TEST_CASE("mixture order: a source goes on where it was, whatever stages lie between",
          "[data][mixture][ST-11]") {
  auto options = options_of({50, 40, 30}, {2, 1});
  options.stages[0].sources = {0, 1};
  options.stages.push_back({.from_step = 7, .sources = {1, 2}, .weights = {1, 3}});
  options.stages.push_back({.from_step = 20, .sources = {0, 2}, .weights = {1, 1}});
  const MixtureOrder order(options);
  std::vector<Counts> numbers(3);
  for (std::uint64_t step = 0; step < 40; ++step) {
    for (std::size_t source = 0; source < 3; ++source) {
      CHECK(order.drawn(source, step) == numbers[source].size());
    }
    draws_of(order, options, step, [&](const MixtureOrder::Draw& draw) {
      const auto& stage = options.stages[step < 7 ? 0 : step < 20 ? 1 : 2];
      CHECK(std::ranges::count(stage.sources, draw.source) == 1);
      numbers[draw.source].push_back(draw.number);
      CHECK(draw.row == order.row_of(draw.source, draw.number));
    });
  }
  for (Counts& each : numbers) {
    std::ranges::sort(each);
    Counts all(each.size());
    std::iota(all.begin(), all.end(), std::uint64_t{0});
    CHECK(each == all);
  }
}

TEST_CASE("mixture order: far into a long run a row is found without what came before",
          "[data][mixture][ST-11]") {
  auto options = options_of({3'000'000'000, 1'000'000'007, 12}, {700001, 299998, 1});
  options.lanes = 64;
  options.micro_batch = 8;
  options.stages.push_back({.from_step = 500'000'000, .sources = {0, 2}, .weights = {999983, 17}});
  const MixtureOrder order(options);
  constexpr std::uint64_t kStep = 999'999'999;  // Row 5 * 10^11.
  Counts found(3);
  draws_of(order, options, kStep, [&](const MixtureOrder::Draw& draw) {
    CHECK(draw.number >= order.drawn(draw.source, kStep));
    CHECK(draw.number < order.drawn(draw.source, kStep + 1));
    CHECK(draw.row < options.rows[draw.source]);
    ++found[draw.source];
  });
  CHECK(found[0] + found[2] == 512);
  for (std::size_t source = 0; source < 3; ++source) {
    CHECK(order.drawn(source, kStep + 1) - order.drawn(source, kStep) == found[source]);
  }
}

}  // namespace train::data
