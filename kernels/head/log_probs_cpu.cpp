#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "kernels/cpu_support.hpp"
#include "kernels/head/head_loss_products.hpp"
#include "kernels/head/log_probs.hpp"
#include "kernels/head/logit_row.hpp"
#include "kernels/kernel_list.hpp"

namespace train::kernels::cpu {
namespace {

void require_targets(const char* kernel, const std::int32_t* targets, std::int64_t rows,
                     std::int64_t vocab) {
  for (std::int64_t row = 0; targets != nullptr && row < rows; ++row) {
    TRAIN_CHECK(targets[row] >= -1 && targets[row] < vocab,
                "{}: target {} of row {} is outside the vocabulary of {}", kernel, targets[row],
                row, vocab);
  }
}

template <class T>
void put(T* to, std::int64_t row, double value) {
  if (to != nullptr) {
    to[row] = static_cast<T>(value);
  }
}

/// Writes one value to all requested results.
void put_everywhere(const LogProbResults& results, std::int64_t row, double value) {
  for (float* to : {results.log_probs, results.lse, results.entropy, results.log_square_sum,
                    results.top_lse, results.top_mean}) {
    put(to, row, value);
  }
  put(results.argmax, row, -1.0);
}

void put_top(const LogProbResults& results, std::int64_t row, const float* logits,
             std::int64_t vocab) {
  if (results.top_lse == nullptr && results.top_mean == nullptr) {
    return;
  }
  const TopLogits top = top_of_row(logits, vocab, std::min(results.top_k, vocab));
  put(results.top_lse, row, top.lse);
  put(results.top_mean, row, top.mean);
}

/// Writes the results of one row of logits, whose largest is known.
void put_row(const LogitsLogProbsParams& p, std::int64_t row, const float* logits, float largest) {
  const LogProbResults& results = p.results;
  RowMoments moments;
  if (results.entropy != nullptr || results.log_square_sum != nullptr) {
    moments = moments_of_row(logits, p.vocab, largest);
  } else {
    moments.exponentials = exponentiate_row(logits, p.vocab, largest, nullptr);
  }
  const auto [sum, lse] = moments.exponentials;
  if (std::isnan(lse)) {
    put_everywhere(results, row, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  if (p.targets != nullptr) {
    put(results.log_probs, row, static_cast<double>(logits[p.targets[row]]) - lse);
  }
  put(results.lse, row, lse);
  put(results.entropy, row, fixed::log(sum) - moments.shifted / sum);
  put(results.log_square_sum, row, fixed::log(moments.squares) - 2.0 * fixed::log(sum));
  if (results.argmax != nullptr) {
    results.argmax[row] = static_cast<std::int32_t>(find_in_row(logits, p.vocab, largest));
  }
  put_top(results, row, logits, p.vocab);
}

void put_rows(const LogitsLogProbsParams& p, int threads) {
  const LogitShape shape{.scale = p.logit_scale, .softcap = p.softcap};
  each_row(threads, p.rows, p.vocab, [&](std::int64_t row) {
    if (p.targets != nullptr && p.targets[row] < 0) {
      put_everywhere(p.results, row, 0.0);
      return;
    }
    const float* logits = p.logits + row * p.vocab;
    float largest = 0.0F;
    if (shape.plain()) {
      largest = max_of_row(logits, p.vocab);
    } else {
      static thread_local Scratch scratch;
      auto* shaped = scratch.get<float>(p.vocab);
      largest = shape_row(logits, p.vocab, shape, shaped, nullptr);
      logits = shaped;
    }
    put_row(p, row, logits, largest);
  });
}

}  // namespace

void token_log_probs_with(const TokenLogProbsParams& p, int threads, Product multiply) {
  require_targets("token_log_probs", p.targets, p.rows, p.vocab);
  for (std::int64_t first = 0; first < p.rows; first += p.chunk_rows) {
    const std::int64_t rows = std::min(p.chunk_rows, p.rows - first);
    multiply(head_product(p, first, rows), threads);
    put_rows(log_probs_of_rows(p, first, rows), threads);
  }
}

void token_log_probs(const TokenLogProbsParams& p, int threads) {
  token_log_probs_with(p, threads, matmul);
}

void logits_log_probs(const LogitsLogProbsParams& p, int threads) {
  require_targets("logits_log_probs", p.targets, p.rows, p.vocab);
  put_rows(p, threads);
}

}  // namespace train::kernels::cpu
