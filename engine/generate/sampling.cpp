#include "engine/generate/sampling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "engine/philox.hpp"

namespace train::engine {
namespace {

/// NaN counts as the least likely value, so that the order below is total.
double comparable(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : static_cast<double>(logit);
}

/// The most likely token; the first of equals. A vocabulary is large: partial maxima fill vectors.
std::int32_t most_likely(std::span<const float> logits) {
  constexpr std::size_t lanes = 16;
  constexpr float least = -std::numeric_limits<float>::infinity();
  std::array<float, lanes> most;
  most.fill(least);
  const std::size_t whole = logits.size() / lanes * lanes;
  for (std::size_t first = 0; first < whole; first += lanes) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const float logit = logits[first + lane];
      most[lane] = logit > most[lane] ? logit : most[lane];
    }
  }
  for (const float logit : logits.subspan(whole)) {
    most[0] = logit > most[0] ? logit : most[0];
  }
  const float largest = *std::ranges::max_element(most);
  if (largest == least) {
    return 0;  // All are as unlikely as NaN.
  }
  return static_cast<std::int32_t>(std::ranges::find(logits, largest) - logits.begin());
}

/// Token ids, most likely first, ties by id, sorted only as far as requested: a vocabulary is
/// large, and the chosen token is mostly among the first.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  [[nodiscard]] std::int32_t at(std::size_t rank) {
    if (rank >= ordered_) {
      extend(rank + 1);
    }
    return ids_[rank];
  }

 private:
  void extend(std::size_t needed) {
    constexpr std::size_t least = 64;
    constexpr std::size_t growth = 8;
    const std::size_t wanted = std::min(ids_.size(), std::max({least, needed, growth * ordered_}));
    const auto from = ids_.begin() + static_cast<std::ptrdiff_t>(ordered_);
    std::partial_sort(from, ids_.begin() + static_cast<std::ptrdiff_t>(wanted), ids_.end(),
                      [this](std::int32_t a, std::int32_t b) {
                        const double left = comparable(logits_[static_cast<std::size_t>(a)]);
                        const double right = comparable(logits_[static_cast<std::size_t>(b)]);
                        return left != right ? left > right : a < b;
                      });
    ordered_ = wanted;
  }

  std::span<const float> logits_;
  std::vector<std::int32_t> ids_;
  std::size_t ordered_ = 0;
};

/// Unnormalised probabilities at a temperature.
class Weights {
 public:
  Weights(std::span<const float> logits, double largest, double temperature)
      : logits_(logits), largest_(largest), temperature_(temperature) {}

  [[nodiscard]] double of(std::int32_t id) const {
    return fixed::exp((comparable(logits_[static_cast<std::size_t>(id)]) - largest_) /
                      temperature_);
  }
  /// Sum over all tokens, in the order of ids.
  [[nodiscard]] double total() const {
    double sum = 0.0;
    for (std::size_t id = 0; id < logits_.size(); ++id) {
      sum += of(static_cast<std::int32_t>(id));
    }
    return sum;
  }

 private:
  std::span<const float> logits_;
  double largest_, temperature_;
};

}  // namespace

void cap_logits(std::span<float> logits, float cap) {
  if (cap > 0.0F) {
    std::ranges::transform(logits, logits.begin(), [cap](float x) {
      return cap * static_cast<float>(fixed::tanh(x / cap));
    });
  }
}

std::int32_t sample_token(std::span<const float> logits, std::int64_t vocab,
                          const SamplingOptions& options, std::int64_t position) {
  TRAIN_CHECK(vocab > 0 && static_cast<std::size_t>(vocab) <= logits.size());
  const auto real = logits.first(static_cast<std::size_t>(vocab));
  const std::int32_t best = most_likely(real);
  const double largest = comparable(real[static_cast<std::size_t>(best)]);
  if (options.temperature <= 0.0 || !std::isfinite(largest)) {
    return best;
  }
  const std::size_t most = options.top_k > 0
                               ? std::min(real.size(), static_cast<std::size_t>(options.top_k))
                               : real.size();
  const Weights weights(real, largest, options.temperature);
  Ranking ranking(real);
  const auto words =
      philox_at(options.seed, static_cast<std::uint64_t>(position), RandomDomain::sampling);
  const double random = open_unit(words[0]);
  // Sum over all tokens, or over the k most likely.
  double total = 0.0;
  if (most == real.size()) {
    total = weights.total();
  } else {
    for (std::size_t rank = 0; rank < most; ++rank) {
      total += weights.of(ranking.at(rank));
    }
  }
  std::size_t kept = most;
  if (options.top_p < 1.0) {
    double reached = 0.0;
    for (kept = 0; kept < most && (kept == 0 || reached < options.top_p * total); ++kept) {
      reached += weights.of(ranking.at(kept));
    }
    total = reached;
  }
  double left = random * total;
  std::size_t rank = 0;
  while (rank + 1 < kept) {
    const double weight = weights.of(ranking.at(rank));
    if (left < weight) {
      break;
    }
    left -= weight;
    ++rank;
  }
  return ranking.at(rank);
}

}  // namespace train::engine
