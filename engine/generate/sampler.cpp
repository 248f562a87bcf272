#include "engine/generate/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "engine/philox.hpp"

namespace train::engine {
namespace {

/// NaN counts as the least likely value, so that the order below is total.
double comparable(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : static_cast<double>(logit);
}

/// Token ids, most likely first, ties by id; only the first `kept` are in order.
std::vector<std::int32_t> ranked(std::span<const float> logits, std::size_t kept) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const double left = comparable(logits[static_cast<std::size_t>(a)]);
    const double right = comparable(logits[static_cast<std::size_t>(b)]);
    return left != right ? left > right : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
                    before);
  ids.resize(kept);
  return ids;
}

/// Probabilities of the ranked tokens at a temperature, cut to the nucleus.
std::vector<double> nucleus(std::span<const float> logits, const std::vector<std::int32_t>& ids,
                            const SamplingOptions& options) {
  const double largest = comparable(logits[static_cast<std::size_t>(ids.front())]);
  std::vector<double> weights;
  for (const std::int32_t id : ids) {
    const double logit = comparable(logits[static_cast<std::size_t>(id)]);
    weights.push_back(std::exp((logit - largest) / options.temperature));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0.0;
  std::size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || reached < options.top_p * total)) {
    reached += weights[kept++];
  }
  weights.resize(kept);
  return weights;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, std::int64_t vocab,
                          const SamplingOptions& options, std::int64_t position) {
  TRAIN_CHECK(vocab > 0 && static_cast<std::size_t>(vocab) <= logits.size());
  const auto real = logits.first(static_cast<std::size_t>(vocab));
  const bool greedy = options.temperature <= 0.0;
  std::size_t kept = real.size();
  if (options.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  }
  const std::vector<std::int32_t> ids = ranked(real, greedy ? 1 : kept);
  if (greedy || !std::isfinite(comparable(real[static_cast<std::size_t>(ids.front())]))) {
    return ids.front();
  }
  const std::vector<double> weights = nucleus(real, ids, options);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto words =
      philox_at(options.seed, static_cast<std::uint64_t>(position), RandomDomain::sampling);
  double left = open_unit(words[0]) * total;
  std::size_t chosen = 0;
  while (chosen + 1 < weights.size() && left >= weights[chosen]) {
    left -= weights[chosen++];
  }
  return ids[chosen];
}

}  // namespace train::engine
