#include "kernels/attention/attention.hpp"

#include <algorithm>
#include <string>

#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::attention_test {
namespace {

/// q, k and v side by side in one fused row per token, as a projection leaves them; the outputs are
/// packed.
struct Case {
  std::int64_t sequences, seq_len, heads, head_dim;
  std::int64_t kv_heads = 0;  ///< 0: as many.
  std::int64_t window = 0;
  float softcap = 0.0F;
  std::int64_t prefix = 0;
  const KernelTable* kernels = nullptr;  ///< nullptr: cpu_backend().

  [[nodiscard]] const KernelTable& table() const {
    return kernels == nullptr ? cpu_backend() : *kernels;
  }

  [[nodiscard]] std::int64_t keys() const { return kv_heads == 0 ? heads : kv_heads; }
  [[nodiscard]] std::int64_t kv_width() const { return keys() * head_dim; }
  /// Column of queries, keys or values (0 to 2) in a fused row.
  [[nodiscard]] std::int64_t column(std::int64_t part) const {
    return part == 0 ? 0 : width() + (part - 1) * kv_width();
  }
  [[nodiscard]] bool sees(std::int64_t row, std::int64_t key) const {
    return key <= row && (window == 0 || key > row - window || key < prefix);
  }
  [[nodiscard]] std::int64_t tokens() const { return sequences * seq_len; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] RowLayout fused() const { return {width() + 2 * kv_width() + 1, head_dim}; }
  [[nodiscard]] RowLayout packed() const { return {width(), head_dim}; }
  [[nodiscard]] std::int64_t fused_size() const { return tokens() * fused().outer_stride; }
  [[nodiscard]] std::int64_t packed_size() const { return tokens() * width(); }
  [[nodiscard]] std::int64_t rows() const { return sequences * heads * seq_len; }
  [[nodiscard]] float scale() const { return 1.5F / std::sqrt(static_cast<float>(head_dim)); }
  [[nodiscard]] Values qkv() const { return random_values(fused_size(), 1, 2.0F); }
  [[nodiscard]] Values dout() const { return random_values(packed_size(), 2); }
  [[nodiscard]] std::string name() const {
    return table().kernel_set() + ", attention of " + std::to_string(sequences) + " x " +
           std::to_string(seq_len) + ", " + std::to_string(heads) + " x " +
           std::to_string(head_dim) + ", " + std::to_string(keys()) + " of keys, window " +
           std::to_string(window) + " and " + std::to_string(prefix) + ", cap " +
           std::to_string(softcap);
  }
};

struct Results {
  Values out, lse, dqkv;
};

Results compute(const Case& t, int threads) {
  const Values qkv = t.qkv();
  const Values dout = t.dout();
  Results r{.out = untouched_values(t.packed_size()),
            .lse = untouched_values(t.rows()),
            .dqkv = untouched_values(t.fused_size())};
  Values delta = zeros(t.rows());
  const std::int64_t k = t.column(1);
  const std::int64_t v = t.column(2);
  run(
      [&](Stream& stream) {
        t.table().attention_forward(stream, {.q = qkv.data(),
                                             .k = qkv.data() + k,
                                             .v = qkv.data() + v,
                                             .out = r.out.data(),
                                             .lse = r.lse.data(),
                                             .sequences = t.sequences,
                                             .seq_len = t.seq_len,
                                             .heads = t.heads,
                                             .head_dim = t.head_dim,
                                             .kv_heads = t.kv_heads,
                                             .window = t.window,
                                             .prefix = t.prefix,
                                             .softcap = t.softcap,
                                             .q_layout = t.fused(),
                                             .k_layout = t.fused(),
                                             .v_layout = t.fused(),
                                             .out_layout = t.packed(),
                                             .scale = t.scale()});
        t.table().attention_backward(stream, {.q = qkv.data(),
                                              .k = qkv.data() + k,
                                              .v = qkv.data() + v,
                                              .out = r.out.data(),
                                              .dout = dout.data(),
                                              .lse = r.lse.data(),
                                              .delta = delta.data(),
                                              .dq = r.dqkv.data(),
                                              .dk = r.dqkv.data() + k,
                                              .dv = r.dqkv.data() + v,
                                              .sequences = t.sequences,
                                              .seq_len = t.seq_len,
                                              .heads = t.heads,
                                              .head_dim = t.head_dim,
                                              .kv_heads = t.kv_heads,
                                              .window = t.window,
                                              .prefix = t.prefix,
                                              .softcap = t.softcap,
                                              .q_layout = t.fused(),
                                              .k_layout = t.fused(),
                                              .v_layout = t.fused(),
                                              .out_layout = t.packed(),
                                              .dout_layout = t.packed(),
                                              .dq_layout = t.fused(),
                                              .dk_layout = t.fused(),
                                              .dv_layout = t.fused(),
                                              .scale = t.scale()});
      },
      threads);
  return r;
}

/// The formulas in double, one query row at a time, with the whole row of scores.
class Reference {
 public:
  explicit Reference(const Case& t) : t_(t), scale_(static_cast<double>(t.scale())) {}

  struct Output {
    Exact out, lse, dqkv;
  };

  [[nodiscard]] Output compute(const Exact& qkv, const Values& dout) const {
    Output o{.out = Exact(at(t_.packed_size())),
             .lse = Exact(at(t_.rows())),
             .dqkv = Exact(at(t_.fused_size()), static_cast<double>(untouched))};
    for (std::int64_t token = 0; token < t_.tokens(); ++token) {
      for (std::int64_t c = 0; c + 1 < t_.fused().outer_stride; ++c) {
        o.dqkv[at(token * t_.fused().outer_stride + c)] = 0.0;
      }
    }
    for (std::int64_t b = 0; b < t_.sequences; ++b) {
      for (std::int64_t h = 0; h < t_.heads; ++h) {
        for (std::int64_t i = 0; i < t_.seq_len; ++i) {
          query_row(qkv, dout, b, h, i, o);
        }
      }
    }
    return o;
  }

 private:
  /// Element `c` of part 0 (q), 1 (k) or 2 (v) of a token's head.
  [[nodiscard]] std::size_t index(std::int64_t part, std::int64_t token, std::int64_t h,
                                  std::int64_t c) const {
    const std::int64_t head = part == 0 ? h : h / (t_.heads / t_.keys());
    return at(token * t_.fused().outer_stride + t_.column(part) + head * t_.head_dim + c);
  }

  [[nodiscard]] Exact probabilities(const Exact& qkv, std::int64_t b, std::int64_t h,
                                    std::int64_t i, double& lse) const {
    Exact p(at(i + 1));
    double largest = -1e300;
    for (std::int64_t j = 0; j <= i; ++j) {
      if (!t_.sees(i, j)) {
        continue;
      }
      for (std::int64_t c = 0; c < t_.head_dim; ++c) {
        p[at(j)] += scale_ * qkv[index(0, b * t_.seq_len + i, h, c)] *
                    qkv[index(1, b * t_.seq_len + j, h, c)];
      }
      p[at(j)] = capped(p[at(j)]);
      largest = std::max(largest, p[at(j)]);
    }
    double sum = 0.0;
    for (std::int64_t j = 0; j <= i; ++j) {
      p[at(j)] = t_.sees(i, j) ? std::exp(p[at(j)] - largest) : 0.0;
      sum += p[at(j)];
    }
    for (double& value : p) {
      value /= sum;
    }
    lse = largest + std::log(sum);
    return p;
  }

  void query_row(const Exact& qkv, const Values& dout, std::int64_t b, std::int64_t h,
                 std::int64_t i, Output& o) const {
    const std::int64_t query = b * t_.seq_len + i;
    const Exact p = probabilities(qkv, b, h, i, o.lse[at((b * t_.heads + h) * t_.seq_len + i)]);
    Exact dp(p.size());
    double delta = 0.0;
    for (std::int64_t j = 0; j <= i; ++j) {
      const std::int64_t key = b * t_.seq_len + j;
      for (std::int64_t c = 0; c < t_.head_dim; ++c) {
        const std::size_t to = at(query * t_.width() + h * t_.head_dim + c);
        const double gradient = dout[to];
        o.out[to] += p[at(j)] * qkv[index(2, key, h, c)];
        o.dqkv[index(2, key, h, c)] += p[at(j)] * gradient;
        dp[at(j)] += gradient * qkv[index(2, key, h, c)];
      }
      delta += p[at(j)] * dp[at(j)];
    }
    for (std::int64_t j = 0; j <= i; ++j) {
      const std::int64_t key = b * t_.seq_len + j;
      const double ds = p[at(j)] * (dp[at(j)] - delta) * scale_ * cap_slope(qkv, query, key, h);
      for (std::int64_t c = 0; c < t_.head_dim; ++c) {
        o.dqkv[index(0, query, h, c)] += ds * qkv[index(1, key, h, c)];
        o.dqkv[index(1, key, h, c)] += ds * qkv[index(0, query, h, c)];
      }
    }
  }

  [[nodiscard]] double capped(double score) const {
    const auto cap = static_cast<double>(t_.softcap);
    return cap == 0.0 ? score : cap * std::tanh(score / cap);
  }

  [[nodiscard]] double cap_slope(const Exact& qkv, std::int64_t query, std::int64_t key,
                                 std::int64_t h) const {
    if (t_.softcap == 0.0F) {
      return 1.0;
    }
    double score = 0.0;
    for (std::int64_t c = 0; c < t_.head_dim; ++c) {
      score += scale_ * qkv[index(0, query, h, c)] * qkv[index(1, key, h, c)];
    }
    const double t = std::tanh(score / static_cast<double>(t_.softcap));
    return 1.0 - t * t;
  }

  Case t_;
  double scale_;
};

constexpr Case cases[] = {{1, 1, 1, 1},
                          {2, 5, 3, 7},
                          {1, 64, 2, 64},
                          {2, 65, 1, 33},
                          {1, 130, 3, 16},
                          {3, 17, 2, 80},
                          {1, 257, 2, 64},
                          {2, 70, 4, 16, 2},
                          {1, 130, 6, 8, 1},
                          {1, 150, 2, 16, 0, 1},
                          {1, 150, 2, 16, 0, 40},
                          {2, 200, 4, 8, 2, 64},
                          {1, 90, 2, 16, 0, 0, 2.5F},
                          {2, 140, 6, 24, 3, 33, 4.0F},
                          {1, 50, 2, 8, 2, 1000, 50.0F},
                          {1, 210, 9, 16, 3, 70, 3.0F},
                          {1, 150, 2, 16, 0, 40, 0.0F, 3},
                          {2, 200, 4, 8, 2, 1, 0.0F, 64},
                          {1, 230, 3, 12, 1, 66, 0.0F, 130},
                          {1, 20, 2, 8, 0, 5, 0.0F, 70}};

TEST_CASE("attention: forward and backward agree with a double reference", "[kernels][attention]") {
  for (const Case& t : cases) {
    const auto expected = Reference(t).compute(exact(t.qkv()), t.dout());
    const Results r = compute(t, 2);
    // exp turns the rounding of a score of size 10 into a relative error of 1e-6; outputs are of
    // size 1, gradients of keys sum up to 257 rows.
    require_near(r.out, expected.out, 3e-6, t.name());
    require_near(r.lse, expected.lse, 2e-6, t.name() + " lse");
    require_near(r.dqkv, expected.dqkv, 1e-5, t.name() + " gradients");
  }
}

TEST_CASE("attention: the reference's gradients are finite differences", "[kernels][attention]") {
  const Case t =
      GENERATE(Case{2, 5, 2, 3}, Case{2, 5, 4, 3, 2, 3, 1.5F}, Case{1, 6, 4, 3, 2, 2, 0.0F, 1});
  const Reference reference(t);
  const Values dout = t.dout();
  const Exact expected = finite_differences(exact(t.qkv()), [&](const Exact& qkv) {
    return dot(reference.compute(qkv, dout).out, dout);
  });
  const Exact gradients = reference.compute(exact(t.qkv()), dout).dqkv;
  const Values measured = compute(t, 2).dqkv;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (measured[i] == untouched) {
      REQUIRE(expected[i] == 0.0);  // The gap at the end of a row.
    } else {
      REQUIRE(gradients[i] == Approx(expected[i]).margin(1e-7));
      REQUIRE(static_cast<double>(measured[i]) == Approx(expected[i]).margin(1e-5));
    }
  }
}

TEST_CASE("attention: the bits do not depend on the threads", "[kernels][attention]") {
  const KernelTable* const kernels = GENERATE(from_range(cpu_kernel_sets()));
  for (Case t : cases) {
    t.kernels = kernels;
    require_same_bits(
        [&](int threads) {
          const Results r = compute(t, threads);
          return joined({r.out, r.lse, r.dqkv});
        },
        t.name());
  }
}

/// Values of all tokens' heads, packed, laid out as `layout` says; between them nothing is written.
Values laid_out(const Case& t, const Values& packed, const RowLayout& layout) {
  Values values = untouched_values(t.tokens() * layout.outer_stride);
  for (std::int64_t i = 0; i < t.packed_size(); ++i) {
    const std::int64_t token = i / t.width();
    const std::int64_t head = i % t.width() / t.head_dim;
    values[at(token * layout.outer_stride + head * layout.inner_stride + i % t.head_dim)] =
        packed[at(i)];
  }
  return values;
}

/// Part 0 (q), 1 (k) or 2 (v) of fused rows, packed.
Values part_of(const Case& t, const Values& fused, std::int64_t part) {
  Values packed;
  for (std::int64_t i = 0; i < t.packed_size(); ++i) {
    packed.push_back(
        fused[at(i / t.width() * t.fused().outer_stride + part * t.width() + i % t.width())]);
  }
  return packed;
}

TEST_CASE("attention: every tensor has a layout of its own", "[kernels][attention]") {
  const Case t{2, 21, 3, 8};
  const Results expected = compute(t, 2);
  // Rows and heads of each are further apart than those of the one before.
  const auto layout = [&t](std::int64_t which) {
    return RowLayout{t.heads * (t.head_dim + which) + 2 * which, t.head_dim + which};
  };
  const Values q = laid_out(t, part_of(t, t.qkv(), 0), layout(0));
  const Values k = laid_out(t, part_of(t, t.qkv(), 1), layout(1));
  const Values v = laid_out(t, part_of(t, t.qkv(), 2), layout(2));
  const Values dout = laid_out(t, t.dout(), layout(4));
  const auto empty = [&](std::int64_t which) {
    return untouched_values(t.tokens() * layout(which).outer_stride);
  };
  Values out = empty(3);
  Values dq = empty(5);
  Values dk = empty(6);
  Values dv = empty(7);
  Values lse = untouched_values(t.rows());
  Values delta = zeros(t.rows());
  run([&](Stream& stream) {
    cpu::attention_forward(stream, {.q = q.data(),
                                    .k = k.data(),
                                    .v = v.data(),
                                    .out = out.data(),
                                    .lse = lse.data(),
                                    .sequences = t.sequences,
                                    .seq_len = t.seq_len,
                                    .heads = t.heads,
                                    .head_dim = t.head_dim,
                                    .q_layout = layout(0),
                                    .k_layout = layout(1),
                                    .v_layout = layout(2),
                                    .out_layout = layout(3),
                                    .scale = t.scale()});
    cpu::attention_backward(stream, {.q = q.data(),
                                     .k = k.data(),
                                     .v = v.data(),
                                     .out = out.data(),
                                     .dout = dout.data(),
                                     .lse = lse.data(),
                                     .delta = delta.data(),
                                     .dq = dq.data(),
                                     .dk = dk.data(),
                                     .dv = dv.data(),
                                     .sequences = t.sequences,
                                     .seq_len = t.seq_len,
                                     .heads = t.heads,
                                     .head_dim = t.head_dim,
                                     .q_layout = layout(0),
                                     .k_layout = layout(1),
                                     .v_layout = layout(2),
                                     .out_layout = layout(3),
                                     .dout_layout = layout(4),
                                     .dq_layout = layout(5),
                                     .dk_layout = layout(6),
                                     .dv_layout = layout(7),
                                     .scale = t.scale()});
  });
  CHECK(lse == expected.lse);
  CHECK(out == laid_out(t, expected.out, layout(3)));
  CHECK(dq == laid_out(t, part_of(t, expected.dqkv, 0), layout(5)));
  CHECK(dk == laid_out(t, part_of(t, expected.dqkv, 1), layout(6)));
  CHECK(dv == laid_out(t, part_of(t, expected.dqkv, 2), layout(7)));
}

/// What the forward pass makes of one head's queries, keys and values.
Values output_of(const Case& t, const Values& qkv) {
  Values out = zeros(t.packed_size());
  Values lse = zeros(t.rows());
  run([&](Stream& stream) {
    t.table().attention_forward(stream, {.q = qkv.data(),
                                         .k = qkv.data() + t.head_dim,
                                         .v = qkv.data() + 2 * t.head_dim,
                                         .out = out.data(),
                                         .lse = lse.data(),
                                         .sequences = t.sequences,
                                         .seq_len = t.seq_len,
                                         .heads = 1,
                                         .head_dim = t.head_dim,
                                         .q_layout = t.fused(),
                                         .k_layout = t.fused(),
                                         .v_layout = t.fused(),
                                         .out_layout = t.packed(),
                                         .scale = t.scale()});
  });
  return out;
}

TEST_CASE("attention: no token sees a later one", "[kernels][attention]") {
  const Case t{.sequences = 1,
               .seq_len = 130,
               .heads = 1,
               .head_dim = 16,
               .kernels = GENERATE(from_range(cpu_kernel_sets()))};
  Values qkv = t.qkv();
  const Values before = output_of(t, qkv);
  for (std::int64_t c = 0; c < 48; ++c) {
    qkv[at(100 * t.fused().outer_stride + c)] += 3.0F;
  }
  const Values after = output_of(t, qkv);
  REQUIRE(std::equal(before.begin(), before.begin() + 100 * 16, after.begin()));
  REQUIRE_FALSE(
      std::equal(before.begin() + 100 * 16, before.begin() + 101 * 16, after.begin() + 100 * 16));
}

TEST_CASE("attention: large scores do not overflow, NaN is not lost", "[kernels][attention]") {
  const Case t{.sequences = 1,
               .seq_len = 20,
               .heads = 1,
               .head_dim = 16,
               .kernels = GENERATE(from_range(cpu_kernel_sets()))};
  Values qkv = t.qkv();
  for (float& value : qkv) {
    value *= 100.0F;
  }
  for (const float value : output_of(t, qkv)) {
    REQUIRE(std::isfinite(value));
  }
  qkv[at(3 * t.fused().outer_stride + 16)] = std::nanf("");  // A key of token 3.
  const Values out = output_of(t, qkv);
  REQUIRE(std::isfinite(out[at(2 * 16)]));
  for (std::int64_t i = 3; i < 20; ++i) {
    REQUIRE(std::isnan(out[at(i * 16)]));
  }
}

}  // namespace
}  // namespace train::kernels::testing::attention_test
