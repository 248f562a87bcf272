#include "cli/board/metric_history.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace train::cli::metric_history_test {

TEST_CASE("metric history: bins keep least, most and mean of every step, however many there are",
          "[board]") {
  std::mt19937_64 random(Catch::rngSeed());
  std::normal_distribution<double> normal;
  const std::int64_t steps = GENERATE(1, 2048, 2049, 100'000);
  MetricHistory history;
  const auto loss = history.column("loss");
  REQUIRE(loss);
  std::vector<double> values;
  for (std::int64_t step = 0; step < steps; ++step) {
    values.push_back(normal(random));
    history.add(*loss, step, values.back());
  }
  const auto& bins = history.columns().at(0).bins;
  REQUIRE(bins.size() <= MetricHistory::kMostBins);
  REQUIRE(history.last_step() == steps - 1);
  REQUIRE(history.columns().at(0).newest == values.back());
  std::int64_t count = 0;
  for (std::size_t bin = 0; bin < bins.size(); ++bin) {
    double least = std::numeric_limits<double>::infinity(), most = -least, sum = 0.0;
    for (std::int64_t step = static_cast<std::int64_t>(bin) * history.width();
         step < std::min(steps, static_cast<std::int64_t>(bin + 1) * history.width()); ++step) {
      const double value = values[static_cast<std::size_t>(step)];
      least = std::min(least, value);
      most = std::max(most, value);
      sum += value;
      ++count;
    }
    REQUIRE(bins[bin].least == static_cast<float>(least));
    REQUIRE(bins[bin].most == static_cast<float>(most));
    REQUIRE(bins[bin].sum == Approx(sum).margin(1e-9));
  }
  REQUIRE(count == steps);
}

TEST_CASE("metric history: a bin's rate is its tokens over its time", "[board]") {
  MetricHistory history;
  const auto rate = history.column("tokens_per_second");
  const auto loss = history.column("loss");
  for (std::int64_t step = 0; step < 4096; ++step) {
    const double value = step % 2 == 0 ? 100.0 : 300.0;  // 1 s and a third of one for 100 tokens
    history.add(*rate, step, value);
    history.add(*loss, step, value);
  }
  REQUIRE(history.width() == 2);
  const auto& columns = history.columns();
  CHECK(columns[*rate].mean(columns[*rate].bins[7]) == Approx(150.0));
  CHECK(columns[*loss].mean(columns[*loss].bins[7]) == Approx(200.0));
}

TEST_CASE("metric history: what is not finite is counted and not drawn", "[board]") {
  MetricHistory history;
  const auto loss = history.column("loss");
  history.add(*loss, 1, std::numeric_limits<double>::quiet_NaN());
  history.add(*loss, 2, std::numeric_limits<double>::infinity());
  history.add(*loss, 3, 1.5);
  CHECK(history.lost() == 2);
  CHECK(history.columns().at(0).bins.at(1).count == 0);
  CHECK(history.columns().at(0).bins.at(3).count == 1);
}

TEST_CASE("metric history: the number of quantities is bounded", "[board]") {
  MetricHistory history;
  for (std::size_t name = 0; name < MetricHistory::kMostColumns; ++name) {
    REQUIRE(history.column(std::to_string(name)) == name);
  }
  CHECK_FALSE(history.column("one more"));
  CHECK(history.column("7") == 7);
}

TEST_CASE("metric history: a range begins at its first step", "[board]") {
  MetricHistory history(1'000'000);
  const auto loss = history.column("loss");
  history.add(*loss, 999'999, 1.0);
  history.add(*loss, 1'000'002, 2.0);
  CHECK(history.width() == 1);
  REQUIRE(history.columns().at(0).bins.size() == 3);
  CHECK(history.columns().at(0).bins.at(2).least == 2.0F);
}

}  // namespace train::cli::metric_history_test
