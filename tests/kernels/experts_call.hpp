#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "kernels/experts/experts.hpp"
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
                                       RouterKind::sigmoid};

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

/// Weights of the chosen experts.
inline Exact exact_weights(const Exact& logits, const Numbers& chosen, const ExpertSizes& sizes,
                           RouterKind kind) {
  Exact weights;
  for (std::int64_t row = 0; row < sizes.rows; ++row) {
    const ExactRow of_row = exact_row(logits, row, sizes.experts);
    double sum = 0.0;
    for (std::int64_t i = row * sizes.slots; i < (row + 1) * sizes.slots; ++i) {
      const double logit = logits[at(row * sizes.experts + chosen[at(i)])];
      weights.push_back(kind == RouterKind::sigmoid ? 1.0 / (1.0 + std::exp(-logit))
                                                    : of_row.probabilities[at(chosen[at(i)])]);
      sum += weights.back();
    }
    for (std::int64_t slot = 1; kind == RouterKind::softmax_normalised && slot <= sizes.slots;
         ++slot) {
      weights[weights.size() - at(slot)] /= sum;
    }
  }
  return weights;
}

struct Routed {
  Numbers chosen;
  Values weights;
};

inline Routed routed(const Values& logits, const ExpertSizes& sizes, RouterKind kind,
                     int threads = 2) {
  Routed result{.chosen = Numbers(at(sizes.places()), -7),
                .weights = untouched_values(sizes.places())};
  run(
      [&](Stream& stream) {
        cpu::router_forward(stream, {.kind = kind,
                                     .logits = logits.data(),
                                     .chosen = result.chosen.data(),
                                     .weights = result.weights.data(),
                                     .rows = sizes.rows,
                                     .experts = sizes.experts,
                                     .slots = sizes.slots});
      },
      threads);
  return result;
}

}  // namespace train::kernels::testing
