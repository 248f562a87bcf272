// Attention with sinks, and with values of another width than keys.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/attention/attention.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::attention_sinks_test {
namespace {

struct Case {
  std::int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim;
  bool sinks = false;
  std::int64_t window = 0;
  float softcap = 0.0F;
  std::int64_t document = 0;  ///< Length of each document; 0: one per sequence.

  [[nodiscard]] RowLayout query() const { return {heads * head_dim + 3, head_dim}; }
  [[nodiscard]] RowLayout key() const { return {kv_heads * head_dim, head_dim}; }
  [[nodiscard]] RowLayout value() const { return {kv_heads * value_dim + 1, value_dim}; }
  [[nodiscard]] RowLayout out() const { return {heads * value_dim, value_dim}; }
  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }
  [[nodiscard]] std::int64_t size(const RowLayout& rows) const {
    return tokens() * rows.outer_stride;
  }
  [[nodiscard]] float scale() const { return 1.3F / std::sqrt(static_cast<float>(head_dim)); }
  [[nodiscard]] std::int64_t place(std::int64_t token) const {
    return document == 0 ? token : token % document;
  }
  [[nodiscard]] std::int64_t first_key(std::int64_t token) const {
    const std::int64_t first = token - place(token);
    return window == 0 ? first : std::max(first, token + 1 - window);
  }
  [[nodiscard]] std::string name() const {
    return std::to_string(sequences) + " x " + std::to_string(seq_len) + ", " +
           std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " +
           std::to_string(head_dim) + "/" + std::to_string(value_dim) + ", window " +
           std::to_string(window) + ", cap " + std::to_string(softcap) + ", documents of " +
           std::to_string(document) + (sinks ? ", sinks" : "");
  }
};

template <class Numbers>
struct Inputs {
  Numbers q, k, v, sinks;
};

Inputs<Values> inputs_of(const Case& t) {
  return {.q = random_values(t.size(t.query()), 1, 2.0F),
          .k = random_values(t.size(t.key()), 2, 2.0F),
          .v = random_values(t.size(t.value()), 3),
          .sinks = random_values(t.heads, 4, 3.0F)};
}
Inputs<Exact> exact(const Inputs<Values>& in) {
  return {.q = testing::exact(in.q),
          .k = testing::exact(in.k),
          .v = testing::exact(in.v),
          .sinks = testing::exact(in.sinks)};
}
Values dout_of(const Case& t) { return random_values(t.size(t.out()), 5); }

template <class Numbers>
struct Results {
  Numbers out, lse, dq, dk, dv, dsinks;
};

/// Places in documents; empty: one document per sequence.
std::vector<std::int32_t> positions_of(const Case& t) {
  std::vector<std::int32_t> positions;
  for (std::int64_t token = 0; t.document > 0 && token < t.tokens(); ++token) {
    positions.push_back(static_cast<std::int32_t>(t.place(token % t.seq_len)));
  }
  return positions;
}

AttentionForwardParams forward_params(const Case& t, const Inputs<Values>& in,
                                      const std::vector<std::int32_t>& positions,
                                      Results<Values>& to) {
  return {.q = in.q.data(),
          .k = in.k.data(),
          .v = in.v.data(),
          .out = to.out.data(),
          .lse = to.lse.data(),
          .positions = positions.empty() ? nullptr : positions.data(),
          .sequences = t.sequences,
          .seq_len = t.seq_len,
          .heads = t.heads,
          .head_dim = t.head_dim,
          .value_dim = t.value_dim,
          .kv_heads = t.kv_heads,
          .window = t.window,
          .softcap = t.softcap,
          .q_layout = t.query(),
          .k_layout = t.key(),
          .v_layout = t.value(),
          .out_layout = t.out(),
          .scale = t.scale(),
          .sinks = t.sinks ? in.sinks.data() : nullptr};
}

/// Backward pass of a forward pass.
AttentionBackwardParams backward_params(const Case& t, const AttentionForwardParams& forward,
                                        const Values& dout, Values& delta, Results<Values>& to) {
  return {.q = forward.q,
          .k = forward.k,
          .v = forward.v,
          .out = to.out.data(),
          .dout = dout.data(),
          .lse = to.lse.data(),
          .positions = forward.positions,
          .delta = delta.data(),
          .dq = to.dq.data(),
          .dk = to.dk.data(),
          .dv = to.dv.data(),
          .sequences = t.sequences,
          .seq_len = t.seq_len,
          .heads = t.heads,
          .head_dim = t.head_dim,
          .value_dim = t.value_dim,
          .kv_heads = t.kv_heads,
          .window = t.window,
          .softcap = t.softcap,
          .q_layout = t.query(),
          .k_layout = t.key(),
          .v_layout = t.value(),
          .out_layout = t.out(),
          .dout_layout = t.out(),
          .dq_layout = t.query(),
          .dk_layout = t.key(),
          .dv_layout = t.value(),
          .scale = t.scale()};
}

Results<Values> compute(const Case& t, const KernelTable& kernels, const Inputs<Values>& in,
                        int threads) {
  const Values dout = dout_of(t);
  const std::int64_t rows = t.tokens() * t.heads;
  Results<Values> r{.out = untouched_values(t.size(t.out())),
                    .lse = untouched_values(rows),
                    .dq = untouched_values(t.size(t.query())),
                    .dk = untouched_values(t.size(t.key())),
                    .dv = untouched_values(t.size(t.value())),
                    .dsinks = untouched_values(t.heads)};
  Values delta = untouched_values(rows);
  const std::vector<std::int32_t> positions = positions_of(t);
  const AttentionForwardParams forward = forward_params(t, in, positions, r);
  run(
      [&](Stream& stream) {
        kernels.attention_forward(stream, forward);
        kernels.attention_backward(stream, backward_params(t, forward, dout, delta, r));
        if (t.sinks) {
          kernels.attention_sinks_backward(stream, {.sinks = forward.sinks,
                                                    .lse = r.lse.data(),
                                                    .delta = delta.data(),
                                                    .dsinks = r.dsinks.data(),
                                                    .sequences = t.sequences,
                                                    .seq_len = t.seq_len,
                                                    .heads = t.heads});
        }
      },
      threads);
  return r;
}

/// Formulas in double, one query at a time, with a whole row of scores.
class Reference {
 public:
  Reference(const Case& t, const Inputs<Exact>& in) : t_(t), in_(in), dout_(dout_of(t)) {
    const auto gaps = [&](const RowLayout& rows, std::int64_t width) {
      Exact values(at(t.size(rows)), static_cast<double>(untouched));
      for (std::int64_t token = 0; token < t.tokens(); ++token) {
        std::fill_n(values.begin() + token * rows.outer_stride, width, 0.0);
      }
      return values;
    };
    results.out = gaps(t.out(), t.heads * t.value_dim);
    results.lse = Exact(at(t.tokens() * t.heads));
    results.dq = gaps(t.query(), t.heads * t.head_dim);
    results.dk = gaps(t.key(), t.kv_heads * t.head_dim);
    results.dv = gaps(t.value(), t.kv_heads * t.value_dim);
    results.dsinks = Exact(at(t.heads), t.sinks ? 0.0 : static_cast<double>(untouched));
    for (std::int64_t sequence = 0; sequence < t.sequences; ++sequence) {
      for (std::int64_t head = 0; head < t.heads; ++head) {
        for (std::int64_t token = 0; token < t.seq_len; ++token) {
          query(sequence, head, token);
        }
      }
    }
  }

  Results<Exact> results;

 private:
  static std::size_t element(const RowLayout& rows, std::int64_t token, std::int64_t head) {
    return at(token * rows.outer_stride + head * rows.inner_stride);
  }

  /// A query's probabilities, and the slopes of its scores.
  struct Softmax {
    Exact p, slopes;
    double lse;
  };

  [[nodiscard]] Softmax softmax(std::size_t q, std::int64_t first_row, std::int64_t keys,
                                std::int64_t kv, double sink) const {
    const auto scale = static_cast<double>(t_.scale());
    const auto cap = static_cast<double>(t_.softcap);
    Exact p(at(keys));
    Exact slopes(p.size(), scale);
    double largest = t_.sinks ? sink : -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < p.size(); ++j) {
      const std::size_t k = element(t_.key(), first_row + static_cast<std::int64_t>(j), kv);
      for (std::size_t c = 0; c < at(t_.head_dim); ++c) {
        p[j] += scale * in_.q[q + c] * in_.k[k + c];
      }
      if (cap > 0.0) {
        const double bent = std::tanh(p[j] / cap);
        p[j] = cap * bent;
        slopes[j] *= 1.0 - bent * bent;
      }
      largest = std::max(largest, p[j]);
    }
    double sum = t_.sinks ? std::exp(sink - largest) : 0.0;
    for (const double score : p) {
      sum += std::exp(score - largest);
    }
    const double lse = largest + std::log(sum);
    for (double& score : p) {
      score = std::exp(score - lse);
    }
    return {std::move(p), std::move(slopes), lse};
  }

  void query(std::int64_t sequence, std::int64_t head, std::int64_t token) {
    const std::int64_t base = sequence * t_.seq_len;
    const std::int64_t first = base + t_.first_key(token);
    const std::int64_t kv = head / (t_.heads / t_.kv_heads);
    const std::size_t q = element(t_.query(), base + token, head);
    const std::size_t o = element(t_.out(), base + token, head);
    const double sink = in_.sinks[at(head)];
    const auto [p, slopes, lse] = softmax(q, first, base + token + 1 - first, kv, sink);
    results.lse[at((sequence * t_.heads + head) * t_.seq_len + token)] = lse;
    Exact dp(p.size());
    double delta = 0.0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      const std::size_t v = element(t_.value(), first + static_cast<std::int64_t>(j), kv);
      for (std::size_t c = 0; c < at(t_.value_dim); ++c) {
        results.out[o + c] += p[j] * in_.v[v + c];
        const auto gradient = static_cast<double>(dout_[o + c]);
        results.dv[v + c] += p[j] * gradient;
        dp[j] += gradient * in_.v[v + c];
      }
      delta += p[j] * dp[j];
    }
    for (std::size_t j = 0; j < p.size(); ++j) {
      const std::size_t k = element(t_.key(), first + static_cast<std::int64_t>(j), kv);
      const double ds = p[j] * (dp[j] - delta) * slopes[j];
      for (std::size_t c = 0; c < at(t_.head_dim); ++c) {
        results.dq[q + c] += ds * in_.k[k + c];
        results.dk[k + c] += ds * in_.q[q + c];
      }
    }
    if (t_.sinks) {
      results.dsinks[at(head)] -= std::exp(sink - lse) * delta;
    }
  }

  const Case& t_;
  const Inputs<Exact>& in_;
  Values dout_;
};

// Keys and values of the widths of published models with latent attention and of small ones; the
// other way about; no multiples of any vector.
constexpr Case cases[] = {{1, 70, 2, 2, 192, 128},
                          {2, 130, 2, 1, 96, 64},
                          {1, 90, 3, 3, 40, 16},
                          {2, 65, 4, 2, 24, 12},
                          {1, 100, 2, 1, 16, 40, false, 33},
                          {1, 80, 2, 2, 7, 19, false, 0, 2.0F},
                          {2, 140, 2, 1, 40, 16, false, 30, 0.0F, 47},
                          {1, 1, 2, 1, 8, 8, true},
                          {2, 70, 4, 2, 64, 64, true},
                          {1, 150, 2, 1, 24, 12, true, 17},
                          {1, 90, 6, 2, 16, 16, true, 0, 2.5F},
                          {2, 140, 2, 2, 12, 30, true, 20, 3.0F, 51},
                          {1, 200, 2, 2, 192, 128, true, 0, 0.0F, 90}};

void require_near(const Results<Values>& r, const Results<Exact>& expected, double outputs,
                  double gradients, const std::string& name) {
  testing::require_near(r.out, expected.out, outputs, name);
  testing::require_near(r.lse, expected.lse, outputs, name + " lse");
  testing::require_near(r.dq, expected.dq, gradients, name + " dq");
  testing::require_near(r.dk, expected.dk, gradients, name + " dk");
  testing::require_near(r.dv, expected.dv, gradients, name + " dv");
  testing::require_near(r.dsinks, expected.dsinks, gradients, name + " dsinks");
}

TEST_CASE("attention: sinks and values of any width agree with a double reference",
          "[kernels][attention]") {
  for (const Case& t : cases) {
    const Inputs<Values> in = inputs_of(t);
    const Inputs<Exact> as_exact = exact(in);
    const Reference reference(t, as_exact);
    // As in attention_test.cpp; a sink's gradient adds all rows of its head.
    require_near(compute(t, cpu_backend(), in, 2), reference.results, 3e-6, 1e-5, t.name());
    if (cpu_bf16_backend() != nullptr) {
      // A rounded query or key moves a score of size 1 by a few thousandths, and its probability as
      // much; gradients of keys add a hundred rows of either sign.
      require_near(compute(t, *cpu_bf16_backend(), in, 2), reference.results, 2e-2, 6e-2,
                   "bf16, " + t.name());
    }
  }
}

TEST_CASE("attention: gradients with sinks are finite differences of the forward pass",
          "[kernels][attention]") {
  const Case t = GENERATE(Case{2, 5, 2, 1, 3, 4, true}, Case{1, 7, 2, 2, 4, 2, true, 3, 1.5F});
  const Inputs<Values> in = inputs_of(t);
  const Results<Values> r = compute(t, cpu_backend(), in, 2);
  const auto check = [&](Exact Inputs<Exact>::*part, const Values& gradient) {
    Inputs<Exact> moved = exact(in);
    const Exact differences = finite_differences(moved.*part, [&](const Exact& x) {
      moved.*part = x;
      const Exact out = Reference(t, moved).results.out;
      return dot(out, dout_of(t));
    });
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double found = gradient[i] == untouched ? 0.0 : static_cast<double>(gradient[i]);
      CHECK(found == Approx(differences[i]).margin(1e-5));
    }
  };
  check(&Inputs<Exact>::q, r.dq);
  check(&Inputs<Exact>::k, r.dk);
  check(&Inputs<Exact>::v, r.dv);
  check(&Inputs<Exact>::sinks, r.dsinks);
}

TEST_CASE("attention: the bits of sinks' results do not depend on the threads",
          "[kernels][attention][P1]") {
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  for (const Case& t : cases) {
    require_same_bits(
        [&](int threads) {
          const Results<Values> r = compute(t, *kernels, inputs_of(t), threads);
          return joined({r.out, r.lse, r.dq, r.dk, r.dv, r.dsinks});
        },
        kernels->kernel_set() + ", " + t.name());
  }
}

TEST_CASE("attention: a sink of minus infinity is none, and one far above takes all",
          "[kernels][attention]") {
  Case t{2, 70, 2, 1, 16, 12};
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  Inputs<Values> in = inputs_of(t);
  const Results<Values> without = compute(t, *kernels, in, 2);
  t.sinks = true;
  std::fill(in.sinks.begin(), in.sinks.end(), -std::numeric_limits<float>::infinity());
  const Results<Values> none = compute(t, *kernels, in, 2);
  CHECK(none.out == without.out);
  CHECK(none.lse == without.lse);
  CHECK(none.dsinks == zeros(t.heads));
  in.sinks = {200.0F, std::numeric_limits<float>::quiet_NaN()};
  const Results<Values> all = compute(t, *kernels, in, 2);
  for (std::int64_t i = 0; i < t.size(t.out()); ++i) {
    CAPTURE(i);
    const bool second = i % t.out().outer_stride >= t.value_dim;
    REQUIRE((second ? std::isnan(all.out[at(i)]) : all.out[at(i)] == 0.0F));
  }
  CHECK(all.lse[0] == 200.0F);
  CHECK(std::isfinite(all.dsinks[0]));
  CHECK(std::isnan(all.dsinks[1]));
}

TEST_CASE("attention: gradients of sinks without rows to read are refused",
          "[kernels][attention]") {
  Values one(1);
  const AttentionSinksBackwardParams whole{.sinks = one.data(),
                                           .lse = one.data(),
                                           .delta = one.data(),
                                           .dsinks = one.data(),
                                           .sequences = 1,
                                           .seq_len = 1,
                                           .heads = 1};
  REQUIRE_NOTHROW(check_params(whole));
  const auto refuses = [&](const auto& change) {
    AttentionSinksBackwardParams params = whole;
    change(params);
    REQUIRE_THROWS_AS(check_params(params), CheckFailed);
  };
  refuses([](auto& p) { p.sinks = nullptr; });
  refuses([](auto& p) { p.lse = nullptr; });
  refuses([](auto& p) { p.delta = nullptr; });
  refuses([](auto& p) { p.dsinks = nullptr; });
  refuses([](auto& p) { p.heads = 0; });
  refuses([](auto& p) { p.seq_len = 0; });
  refuses([](auto& p) { p.sequences = -1; });
}

}  // namespace
}  // namespace train::kernels::testing::attention_sinks_test
