#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "kernels/experts/experts.hpp"
#include "kernels/experts/router_row.hpp"
#include "tests/kernels/kernel_fixture.hpp"

// Shared parts of the tests of experts: sizes, choices, and a router in double.
namespace train::kernels::testing {

using Numbers = std::vector<std::int32_t>;

struct ExpertSizes {
  std::int64_t rows, experts, slots;

  [[nodiscard]] std::int64_t places() const { return rows * slots; }
  [[nodiscard]] std::string name() const {
    return std::to_string(rows) + " rows, " + std::to_string(slots) + " of " +
           std::to_string(experts) + " experts";
  }
};

constexpr RouterKind kRouterKinds[] = {RouterKind::softmax, RouterKind::softmax_normalised,
                                       RouterKind::sigmoid, RouterKind::sigmoid_normalised};

/// One row, one expert, every expert, and more experts than a vector has elements.
inline const std::vector<ExpertSizes> kExpertSizes = {
    {1, 1, 1}, {1, 5, 2}, {7, 4, 2}, {33, 64, 8}, {5, 6, 6}, {40, 257, 3}, {2, 1, 1}};

/// Random choices of each row, no two alike; the last expert has none unless every one is chosen.
inline Numbers drawn_choices(const ExpertSizes& sizes, unsigned seed) {
  std::mt19937 generator(seed);
  Numbers experts(at(std::max(sizes.slots, sizes.experts - 1)));
  std::iota(experts.begin(), experts.end(), 0);
  Numbers chosen;
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    std::shuffle(experts.begin(), experts.end(), generator);
    chosen.insert(chosen.end(), experts.begin(), experts.begin() + sizes.slots);
  }
  return chosen;
}

struct Sorted {
  Numbers offsets, row_of, slot_of, places;
};

inline Sorted sorted(const Numbers& chosen, const ExpertSizes& sizes, int threads = 2) {
  Sorted result{.offsets = Numbers(at(sizes.experts + 1), -7),
                .row_of = Numbers(at(sizes.places()), -7),
                .slot_of = Numbers(at(sizes.places()), -7),
                .places = Numbers(at(sizes.places()), -7)};
  run(
      [&](Stream& stream) {
        cpu::expert_sort(stream, {.chosen = chosen.data(),
                                  .offsets = result.offsets.data(),
                                  .row_of = result.row_of.data(),
                                  .slot_of = result.slot_of.data(),
                                  .places = result.places.data(),
                                  .rows = sizes.rows,
                                  .experts = sizes.experts,
                                  .slots = sizes.slots});
      },
      threads);
  return result;
}

/// Softmax of a row, and log sum exp.
struct ExactRow {
  Exact probabilities;
  double lse = 0.0;
};

inline ExactRow exact_row(const Exact& logits, std::int64_t row, std::int64_t experts) {
  const auto begin = logits.begin() + row * experts;
  const double largest = *std::max_element(begin, begin + experts);
  double sum = 0.0;
  ExactRow result;
  for (auto logit = begin; logit != begin + experts; ++logit) {
    result.probabilities.push_back(std::exp(*logit - largest));
    sum += result.probabilities.back();
  }
  for (double& p : result.probabilities) {
    p /= sum;
  }
  result.lse = largest + std::log(sum);
  return result;
}

inline double exact_sigmoid(double logit) { return 1.0 / (1.0 + std::exp(-logit)); }

/// Scores of a row: probabilities of a softmax, or sigmoids.
inline Exact exact_scores(const Exact& logits, std::int64_t row, std::int64_t experts,
                          RouterKind kind) {
  if (!cpu::is_sigmoid(kind)) {
    return exact_row(logits, row, experts).probabilities;
  }
  Exact scores;
  std::transform(logits.begin() + row * experts, logits.begin() + (row + 1) * experts,
                 std::back_inserter(scores), exact_sigmoid);
  return scores;
}

/// The probabilities that balancing takes from a row.
inline Exact exact_shares(const Exact& logits, std::int64_t row, std::int64_t experts,
                          RouterKind kind) {
  Exact shares = exact_scores(logits, row, experts, kind);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) {
    share /= sum;
  }
  return shares;
}

/// Weights of the chosen experts.
inline Exact exact_weights(const Exact& logits, const Numbers& chosen, const ExpertSizes& sizes,
                           RouterKind kind, double scale = 1.0) {
  Exact weights;
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    const Exact scores = exact_scores(logits, row, sizes.experts, kind);
    double sum = kind == RouterKind::sigmoid_normalised ? 1e-20 : 0.0;
    for (std::int64_t i = row * sizes.slots; i < (row + 1) * sizes.slots; ++i) {
      weights.push_back(scores[at(chosen[at(i)])]);
      sum += weights.back();
    }
    const bool normalised =
        kind == RouterKind::softmax_normalised || kind == RouterKind::sigmoid_normalised;
    for (auto weight = weights.end() - sizes.slots; weight != weights.end(); ++weight) {
      *weight *= scale / (normalised ? sum : 1.0);
    }
  }
  return weights;
}

struct Routed {
  Numbers chosen;
  Values weights;
};

/// Routes rows as `p` says, apart from its pointers of logits and results.
inline Routed routed(const Values& logits, RouterForwardParams p, int threads = 2) {
  Routed result{.chosen = Numbers(at(p.rows * p.slots), -7),
                .weights = untouched_values(p.rows * p.slots)};
  p.logits = logits.data();
  p.chosen = result.chosen.data();
  p.weights = result.weights.data();
  run([&](Stream& stream) { cpu::router_forward(stream, p); }, threads);
  return result;
}
inline Routed routed(const Values& logits, const ExpertSizes& sizes, RouterKind kind,
                     int threads = 2) {
  return routed(logits,
                {.kind = kind, .rows = sizes.rows, .experts = sizes.experts, .slots = sizes.slots},
                threads);
}

}  // namespace train::kernels::testing
