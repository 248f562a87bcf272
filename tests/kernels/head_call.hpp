#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "kernels/head/head_loss.hpp"
#include "tests/kernels/kernel_fixture.hpp"

// What the tests of the head's losses share: a call of head_loss with its memory, and its parts in
// double.
namespace train::kernels::testing {

/// In [0, vocab), and -1 now and then.
inline std::vector<std::int32_t> drawn_targets(std::int64_t rows, std::int64_t vocab) {
  std::mt19937 generator(3);
  std::vector<std::int32_t> targets(at(rows));
  for (std::int32_t& target : targets) {
    target = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab + 1)) - 1;
  }
  return targets;
}

/// One call of cpu::head_loss: its inputs, its options, and after run() its results.
struct HeadLossCall {
  Values x, weight;
  std::vector<std::int32_t> targets;
  std::int64_t cols = 1, chunk_rows = 1;
  Values row_weights = {};  ///< Empty: none.
  Values reference_x = {};  ///< Empty: none.
  bool gradients = true;
  HeadLossParams options = {};  ///< All that is neither memory nor a size.

  LossSums sums = {.cross_entropy = -1.0};
  Values dx = {}, dweight = {};  ///< Untouched where no gradients are asked for.
  Exact row_terms = {};

  void run(int threads = 2) {
    const std::int64_t rows = std::ssize(targets);
    const std::int64_t vocab = std::ssize(weight) / cols;
    dx = untouched_values(rows * cols);
    dweight = untouched_values(vocab * cols);
    row_terms.resize(at(rows * 4));
    Values logits = zeros(chunk_rows * vocab);
    Values reference_logits = zeros(chunk_rows * vocab);
    float nothing = 0.0F;  // The gradients of no rows.
    HeadLossParams params = options;
    params.x = x.data();
    params.weight = weight.data();
    params.targets = targets.data();
    params.row_weights = row_weights.empty() ? nullptr : row_weights.data();
    params.sums = &sums;
    params.dx = gradients ? (rows > 0 ? dx.data() : &nothing) : nullptr;
    params.dweight = gradients ? dweight.data() : nullptr;
    params.logits = logits.data();
    params.row_terms = row_terms.data();
    params.rows = rows;
    params.cols = cols;
    params.vocab = vocab;
    params.chunk_rows = chunk_rows;
    params.reference_x = reference_x.empty() ? nullptr : reference_x.data();
    params.reference_logits = reference_x.empty() ? nullptr : reference_logits.data();
    testing::run([&](Stream& stream) { cpu::head_loss(stream, params); }, threads);
  }
};

/// A logit of a product, and what it changes by with it.
struct Shaped {
  double z, slope;
};

/// `t`: any case with logit_scale and softcap.
inline Shaped shaped(const auto& t, double product) {
  const auto scale = static_cast<double>(t.logit_scale);
  const auto cap = static_cast<double>(t.softcap);
  if (cap == 0.0) {
    return {scale * product, scale};
  }
  const double tanh = std::tanh(scale * product / cap);
  return {cap * tanh, scale * (1.0 - tanh * tanh)};
}

/// Those of a row of x. `t`: a case with cols and vocab besides.
inline std::vector<Shaped> logits_of(const auto& t, const Exact& x, const Exact& weight,
                                     std::int64_t row) {
  std::vector<Shaped> logits;
  for (std::int64_t v = 0; v < t.vocab; ++v) {
    double product = 0.0;
    for (std::int64_t c = 0; c < t.cols; ++c) {
      product += x[at(row * t.cols + c)] * weight[at(v * t.cols + c)];
    }
    logits.push_back(shaped(t, product));
  }
  return logits;
}

inline Exact values_of(const std::vector<Shaped>& logits) {
  Exact values;
  for (const Shaped& logit : logits) {
    values.push_back(logit.z);
  }
  return values;
}

inline double log_sum_exp(const Exact& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) {
    sum += std::exp(logit - largest);
  }
  return largest + std::log(sum);
}

}  // namespace train::kernels::testing
