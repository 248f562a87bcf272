#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"

namespace train::kernels::cpu {
namespace {

/// Sums over the groups of a layer.
struct LaneSums {
  double rows = 0.0;
  std::vector<double> counts, probabilities;  ///< [experts].
};

LaneSums lane_sums(const BalanceParams& p) {
  const auto experts = static_cast<std::size_t>(p.experts);
  LaneSums sums{.counts = std::vector<double>(experts),
                .probabilities = std::vector<double>(experts)};
  for (std::int64_t group = 0; group < p.group_count; ++group) {
    sums.rows += p.group_rows[group];
    for (std::size_t e = 0; p.group_rows[group] != 0 && e < experts; ++e) {
      const std::size_t at = static_cast<std::size_t>(group) * experts + e;
      sums.counts[e] += p.counts == nullptr ? 0 : p.counts[at];
      sums.probabilities[e] +=
          p.probabilities == nullptr ? 0.0 : static_cast<double>(p.probabilities[at]);
    }
  }
  return sums;
}

/// One term: its value, and by expert the derivative of that by the probability of one row; of
/// `sequence` for the group alone, times 1 / rows.
class Term {
 public:
  Term(const BalanceParams& p, const LaneSums& lane, const BalanceTerm& term)
      : p_(p), lane_(lane), term_(term), slopes_(static_cast<std::size_t>(p.experts)) {
    if (!counts()) {
      return;
    }
    if (term.kind == BalanceKind::z) {
      value_ = *p.z_squares / lane.rows;
    } else if (term.kind == BalanceKind::hf) {
      pool_layers();
    } else if (term.scope == BalanceScope::sequence) {
      add_groups();
    } else {
      weigh_lane();
    }
  }

  /// False for a term of no rows, and for one of layers that are not known.
  [[nodiscard]] bool counts() const {
    return lane_.rows != 0.0 && (term_.kind != BalanceKind::hf || p_.layer_counts != nullptr);
  }
  [[nodiscard]] double value() const { return value_; }
  /// Derivative of the model's value.
  [[nodiscard]] double slope(std::int64_t group, std::int64_t expert) const {
    if (term_.kind == BalanceKind::switch_loss && term_.scope == BalanceScope::sequence) {
      const double rows = p_.group_rows[group];
      return experts() * p_.counts[group * p_.experts + expert] / (slots() * rows) / lane_.rows /
             layers();
    }
    return slopes_[static_cast<std::size_t>(expert)];
  }

 private:
  [[nodiscard]] double experts() const { return static_cast<double>(p_.experts); }
  [[nodiscard]] double slots() const { return static_cast<double>(p_.slots); }
  [[nodiscard]] double layers() const { return static_cast<double>(p_.layers); }

  void pool_layers() {
    const double rows = layers() * lane_.rows;
    for (std::size_t e = 0; e < slopes_.size(); ++e) {
      double count = 0.0;
      double probability = 0.0;
      for (std::int64_t layer = 0; layer < p_.layers; ++layer) {
        const auto at = static_cast<std::size_t>(layer * p_.layer_stride) + e;
        count += p_.layer_counts[at];
        probability += static_cast<double>(p_.layer_probabilities[at]);
      }
      value_ += experts() * (count / rows) * (probability / rows);
      slopes_[e] = experts() * (count / rows) / rows;
    }
  }

  void weigh_lane() {
    const std::vector<double> shares = shares_of_choices();
    for (std::size_t e = 0; e < slopes_.size(); ++e) {
      value_ += experts() * shares[e] * (lane_.probabilities[e] / lane_.rows);
      slopes_[e] = experts() * shares[e] / lane_.rows / layers();
    }
  }

  /// c_e / (k n).
  [[nodiscard]] std::vector<double> shares_of_choices() const {
    std::vector<double> shares = lane_.counts;
    double all = slots() * lane_.rows;
    if (term_.scope == BalanceScope::previous_step || term_.scope == BalanceScope::step) {
      if (term_.scope == BalanceScope::step) {
        shares.assign(p_.whole, p_.whole + p_.experts);
      } else {
        shares.assign(p_.previous, p_.previous + p_.experts);
      }
      all = 0.0;
      for (const double count : shares) {
        all += count;
      }
      if (all == 0.0) {
        shares.assign(shares.size(), 1.0);
        all = experts();
      }
    }
    for (double& share : shares) {
      share /= all;
    }
    return shares;
  }

  void add_groups() {
    for (std::int64_t group = 0; group < p_.group_count; ++group) {
      const double rows = p_.group_rows[group];
      double sum = 0.0;
      for (std::int64_t i = group * p_.experts; rows != 0.0 && i < (group + 1) * p_.experts; ++i) {
        sum += p_.counts[i] / (slots() * rows) * static_cast<double>(p_.probabilities[i]);
      }
      value_ += experts() * sum / lane_.rows;
    }
  }

  const BalanceParams& p_;
  const LaneSums& lane_;
  const BalanceTerm term_;
  double value_ = 0.0;
  std::vector<double> slopes_;
};

void write_loads(const BalanceParams& p, const LaneSums& lane) {
  const double mean = static_cast<double>(p.slots) * lane.rows / static_cast<double>(p.experts);
  for (std::int64_t e = 0; e < p.experts; ++e) {
    const double count = lane.counts[static_cast<std::size_t>(e)];
    if (p.tally != nullptr) {
      p.tally[e] = static_cast<float>(count);
    }
    if (p.loads != nullptr) {
      p.loads[2 * e] = count;
      p.loads[2 * e + 1] = mean;
    }
  }
}

void write_bias_range(const BalanceParams& p) {
  if (p.bias_range == nullptr) {
    return;
  }
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (const float* value = p.bias; value != p.bias + p.experts; ++value) {
    low = *value < low ? *value : low;
    high = *value > high ? *value : high;
  }
  const std::array<double, 4> pairs = {low, 1.0, high, 1.0};
  std::ranges::copy(pairs, p.bias_range);
}

}  // namespace

void router_balance(const BalanceParams& p, int threads) {
  const LaneSums lane = lane_sums(p);
  write_loads(p, lane);
  write_bias_range(p);
  std::vector<Term> terms;
  terms.reserve(static_cast<std::size_t>(p.term_count));
  double z = 0.0;
  for (std::int64_t i = 0; i < p.term_count; ++i) {
    const Term& term = terms.emplace_back(p, lane, p.terms[i]);
    if (p.values != nullptr) {
      p.values[2 * i] = term.value();
      p.values[2 * i + 1] = term.counts() ? 1.0 : 0.0;
    }
    z += p.terms[i].kind == BalanceKind::z ? static_cast<double>(p.terms[i].coeff) : 0.0;
  }
  const auto scale = static_cast<double>(p.scale);
  if (p.z_factor != nullptr) {
    const double rows = lane.rows * static_cast<double>(p.layers);
    *p.z_factor = rows == 0.0 ? 0.0F : static_cast<float>(scale * z / rows);
  }
  if (p.factors == nullptr) {
    return;
  }
  each_row(threads, p.group_count, p.experts, [&](std::int64_t group) {
    for (std::int64_t e = 0; e < p.experts; ++e) {
      double factor = 0.0;
      for (std::size_t i = 0; p.group_rows[group] != 0 && i < terms.size(); ++i) {
        factor += static_cast<double>(p.terms[i].coeff) * terms[i].slope(group, e);
      }
      p.factors[group * p.experts + e] = static_cast<float>(scale * factor);
    }
  });
}

}  // namespace train::kernels::cpu
