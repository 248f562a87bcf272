#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "engine/objective/pass.hpp"

// The losses of sequential unlearning, of rows of logits and of hidden states, and how gradients
// are joined, in double: the definitions that kernels and runs are compared with.
namespace train::engine::testing {

/// A loss of one row of logits, and its derivatives by them.
struct LogitLoss {
  double loss = 0.0;
  std::vector<double> by_logits;
};

inline double log_sum_exp(std::span<const double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const double logit : logits) {
    sum += fixed::exp(logit - largest);
  }
  return largest + fixed::log(sum);
}

inline std::vector<double> softmax(std::span<const double> logits) {
  const double lse = log_sum_exp(logits);
  std::vector<double> p;
  for (const double logit : logits) {
    p.push_back(fixed::exp(logit - lse));
  }
  return p;
}

inline LogitLoss divided(LogitLoss loss, double by) {
  loss.loss /= by;
  for (double& each : loss.by_logits) {
    each /= by;
  }
  return loss;
}

/// Cross-entropy with the uniform distribution.
inline LogitLoss uniform_loss(std::span<const double> logits) {
  const auto count = static_cast<double>(logits.size());
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0);
  LogitLoss loss{.loss = log_sum_exp(logits) - sum / count, .by_logits = softmax(logits)};
  for (double& each : loss.by_logits) {
    each -= 1.0 / count;
  }
  return loss;
}

/// Ids of the k largest, ascending.
inline std::vector<std::size_t> largest_ids(std::span<const double> logits, std::size_t k) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  ids.resize(k);
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Cross-entropy with `target`: of what is retained.
inline LogitLoss nll_loss(std::span<const double> logits, std::int32_t target) {
  const auto id = static_cast<std::size_t>(target);
  LogitLoss loss{.loss = log_sum_exp(logits) - logits[id], .by_logits = softmax(logits)};
  loss.by_logits[id] -= 1.0;
  return loss;
}

/// sum_v p0 (log p0 - log p), p0 = softmax(reference), without derivative by it.
inline LogitLoss kl_loss(std::span<const double> logits, std::span<const double> reference) {
  TRAIN_CHECK(logits.size() == reference.size());
  const double lse = log_sum_exp(logits);
  const double reference_lse = log_sum_exp(reference);
  LogitLoss loss{.loss = 0.0, .by_logits = softmax(logits)};
  for (std::size_t v = 0; v < logits.size(); ++v) {
    const double log_p0 = reference[v] - reference_lse;
    const double p0 = fixed::exp(log_p0);
    loss.loss += p0 * (log_p0 - (logits[v] - lse));
    loss.by_logits[v] -= p0;
  }
  return loss;
}

/// Cross-entropy with a target that was drawn, over log V.
inline LogitLoss random_target_loss(std::span<const double> logits, std::int32_t target) {
  return divided(nll_loss(logits, target), fixed::log(static_cast<double>(logits.size())));
}

/// Cross-entropy with the uniform distribution, over log V; at least 1.
inline LogitLoss max_entropy_loss(std::span<const double> logits) {
  return divided(uniform_loss(logits), fixed::log(static_cast<double>(logits.size())));
}

/// The same over the `k` largest logits alone, over log k; of equals those of the lowest ids.
/// REQUIRES: 1 < k <= V.
inline LogitLoss top_k_entropy_loss(std::span<const double> logits, std::int64_t k) {
  TRAIN_CHECK(k > 1 && k <= static_cast<std::int64_t>(logits.size()), "{} of {} logits", k,
              logits.size());
  const std::vector<std::size_t> ids = largest_ids(logits, static_cast<std::size_t>(k));
  std::vector<double> chosen;
  for (const std::size_t id : ids) {
    chosen.push_back(logits[id]);
  }
  const LogitLoss among = divided(uniform_loss(chosen), fixed::log(static_cast<double>(k)));
  LogitLoss loss{.loss = among.loss, .by_logits = std::vector<double>(logits.size(), 0.0)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    loss.by_logits[ids[i]] = among.by_logits[i];
  }
  return loss;
}

/// Euclidean distance of a row of hidden states from the frozen copy's, and its derivatives: 0
/// where they are equal.
inline LogitLoss hidden_distance(std::span<const double> hidden, std::span<const double> frozen) {
  TRAIN_CHECK(hidden.size() == frozen.size());
  double squares = 0.0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    squares += (hidden[i] - frozen[i]) * (hidden[i] - frozen[i]);
  }
  LogitLoss loss{.loss = std::sqrt(squares), .by_logits = std::vector<double>(hidden.size(), 0.0)};
  for (std::size_t i = 0; i < hidden.size() && squares > 0.0; ++i) {
    loss.by_logits[i] = (hidden[i] - frozen[i]) / loss.loss;
  }
  return loss;
}

/// Writes the joined gradient over `retain`; how many elements agree. REQUIRES: sizes are equal.
inline std::int64_t join_gradients(GradientJoin join, std::span<float> retain,
                                   std::span<const float> forget) {
  TRAIN_CHECK(retain.size() == forget.size());
  std::int64_t agreeing = 0;
  for (std::size_t i = 0; i < retain.size(); ++i) {
    const float r = retain[i];
    const float f = forget[i];
    const bool agree = (r > 0.0F && f > 0.0F) || (r < 0.0F && f < 0.0F);
    agreeing += agree ? 1 : 0;
    if (agree || join == GradientJoin::sum) {
      retain[i] = r + f;
    } else if (join == GradientJoin::symmetric) {
      retain[i] = 0.0F;
    }
  }
  return agreeing;
}

}  // namespace train::engine::testing
