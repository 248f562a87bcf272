#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/parity/published_models.hpp"
#include "tests/engine/rank/small_model.hpp"

// Tensors against the summaries of tests/reference/models/make_model_fixtures.py.
namespace train::engine::testing {

/// Of a tensor's largest element; the engine computes in float32.
inline constexpr double kSummaryTolerance = 1e-5;

/// Sum of values times a wave.
inline double along_wave(std::span<const float> values, double step) {
  double sum = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    sum += static_cast<double>(values[i]) * std::sin(step * static_cast<double>(i + 1));
  }
  return sum;
}

/// `wanted`: the script's summary. Elements differ by at most `room`; along a wave, where
/// differences add up like noise, by its root of the count.
inline void check_summary(const std::string& name, std::span<const float> found,
                          const nlohmann::json& summary, double room) {
  CAPTURE(name);
  const auto wanted = summary.get<std::vector<double>>();
  double largest = 0.0;
  for (const float value : found) {
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  }
  CHECK(std::abs(largest - wanted[0]) <= room);
  const double along = room * std::sqrt(static_cast<double>(found.size()));
  CHECK(std::abs(along_wave(found, 0.37) - wanted[1]) <= along);
  CHECK(std::abs(along_wave(found, 1.1) - wanted[2]) <= along);
  for (std::size_t i = 3; i < wanted.size(); ++i) {
    const std::size_t at = (crc32_of(name) + 7919 * (i - 3)) % found.size();
    CAPTURE(at);
    CHECK(std::abs(static_cast<double>(found[at]) - wanted[i]) <= room);
  }
}

/// A gradient that is zero in exact arithmetic, such as that of a bias of keys, is noise: below a
/// hundredth of the model's largest gradient that one counts.
/// Gradients of what the reference program trains: it has no counts.
inline std::vector<GradientShard> trained_gradients(const RankEngine& rank) {
  std::vector<GradientShard> shards = gradients_of(rank);
  std::erase_if(shards, [](const GradientShard& shard) {
    return shard.name.ends_with("e_score_correction_bias");
  });
  return shards;
}

inline void check_gradients(const WorldStep& step, const nlohmann::json& expected) {
  double largest = 0.0;
  for (const auto& [name, summary] : expected.items()) {
    largest = std::max(largest, summary.at(0).get<double>());
  }
  const auto shards = trained_gradients(step.rank(0));
  CHECK(shards.size() == expected.size());
  for (const GradientShard& shard : shards) {
    const nlohmann::json& summary = expected.at(shard.name);
    const double counts = std::max(summary.at(0).get<double>(), 0.01 * largest);
    check_summary(shard.name, values_of(shard), summary, kSummaryTolerance * counts);
  }
}

}  // namespace train::engine::testing
