#include "kernels/state_space/selective_scan.hpp"

#include "base/check.hpp"
#include "tests/kernels/state_space_call.hpp"

namespace train::kernels::testing::selective_scan_test {
namespace {

/// Inputs of the formula in double, in the order of the gradients that gradients_of() gives.
struct ExactInputs {
  Exact u, delta, z, b, c, a_log, d, bias;
};

ExactInputs exact_inputs(const ScanCase& s) {
  return {.u = columns(s.u, s.rows, s.u_stride, 0, s.channels),
          .delta = exact(s.delta),
          .z = columns(s.z, s.rows, s.z_stride, 0, s.channels),
          .b = columns(s.bc, s.rows, s.b_stride, 0, s.states),
          .c = columns(s.bc, s.rows, s.b_stride, s.states, s.states),
          .a_log = exact(s.a_log),
          .d = exact(s.d),
          .bias = exact(s.bias)};
}

Exact plain_scan(const ScanCase& s, const ExactInputs& in, const Places& places) {
  Exact y(at(s.rows * s.channels));
  for (std::int64_t i = 0; i < s.channels; ++i) {
    Exact h(at(s.states), 0.0);
    for (std::int64_t row = 0; row < s.rows; ++row) {
      if (places[at(row)] == 0) {
        std::fill(h.begin(), h.end(), 0.0);
      }
      const std::size_t place = at(row * s.channels + i);
      const double step = softplus(in.delta[place] + in.bias[at(i)]);
      double sum = in.d[at(i)] * in.u[place];
      for (std::int64_t n = 0; n < s.states; ++n) {
        const double rate = -std::exp(in.a_log[at(i * s.states + n)]);
        h[at(n)] =
            std::exp(step * rate) * h[at(n)] + step * in.u[place] * in.b[at(row * s.states + n)];
        sum += in.c[at(row * s.states + n)] * h[at(n)];
      }
      y[place] = sum * in.z[place] / (1.0 + std::exp(-in.z[place]));
    }
  }
  return y;
}

/// Rows [first, first + rows) of a case.
struct Piece {
  const ScanCase& s;
  const Places& places;
  std::int64_t first = 0, rows = s.rows;

  [[nodiscard]] ScanInputs inputs() const {
    return s.inputs({.positions = places.data() + first, .sequences = 1, .seq_len = rows}, first);
  }
};

struct Scanned {
  Values y, kept;
};

Scanned scan(const Piece& piece, int threads = 2) {
  const ScanCase& s = piece.s;
  Scanned result{untouched_values(piece.rows * s.channels),
                 untouched_values(scan_kept(piece.rows, s.channels, s.states))};
  run(
      [&](Stream& stream) {
        cpu::selective_scan_forward(stream, {.in = piece.inputs(),
                                             .y = result.y.data(),
                                             .y_stride = s.channels,
                                             .kept = result.kept.data()});
      },
      threads);
  return result;
}

/// du, ddelta, dz, db, dc without what lies beside them, da_log, dd, ddelta_bias; `y`: what takes
/// dy's place.
struct Gradients {
  Values u, delta, z, b, c, a_log, d, bias, y;

  [[nodiscard]] Values all() const { return joined({u, delta, z, b, c, a_log, d, bias}); }
};

Gradients gradients_of(const Piece& piece, int threads = 2) {
  const ScanCase& s = piece.s;
  const Values kept = scan(piece).kept;
  const std::int64_t count = piece.rows * s.channels;
  Gradients g{.u = untouched_values(count),
              .delta = untouched_values(count),
              .z = untouched_values(piece.rows * s.z_stride),
              .b = untouched_values(piece.rows * s.b_stride),
              .c = {},
              .a_log = untouched_values(s.channels * s.states),
              .d = untouched_values(s.channels),
              .bias = untouched_values(s.channels),
              .y = {s.dy.begin() + piece.first * s.channels,
                    s.dy.begin() + piece.first * s.channels + count}};
  Values partial = untouched_values(scan_partial(piece.rows, s.channels, s.states));
  run(
      [&](Stream& stream) {
        cpu::selective_scan_backward(stream, {.in = piece.inputs(),
                                              .kept = kept.data(),
                                              .y = g.y.data(),
                                              .y_stride = s.channels,
                                              .du = g.u.data(),
                                              .ddelta = g.delta.data(),
                                              .dz = g.z.data(),
                                              .db = g.b.data(),
                                              .dc = g.b.data() + s.states,
                                              .da_log = g.a_log.data(),
                                              .dd = g.d.data(),
                                              .ddelta_bias = g.bias.data(),
                                              .partial = partial.data()});
      },
      threads);
  g.c = columns_of(g.b, piece.rows, s.b_stride, s.states, s.states);
  g.b = columns_of(g.b, piece.rows, s.b_stride, 0, s.states);
  g.z = columns_of(g.z, piece.rows, s.z_stride, 0, s.channels);
  return g;
}

std::int64_t sum_of_lengths() {
  std::int64_t rows = 0;
  for (const std::int64_t length : kLengths) {
    rows += length;
  }
  return rows;
}

}  // namespace

TEST_CASE("selective_scan: rows are those of the recurrence in double", "[kernels][ssm]") {
  const Places places = places_of(kLengths);
  for (const std::int64_t states : {1, 8, 16}) {
    for (const std::int64_t channels : {1, 70, 128}) {
      const ScanCase s{.rows = sum_of_lengths(), .channels = channels, .states = states};
      // Sums of 16 terms of states that forget within some rows.
      require_near(scan({s, places}).y, plain_scan(s, exact_inputs(s), places), 1e-5,
                   "selective_scan_forward");
    }
  }
}

TEST_CASE("selective_scan: gradients are those of differences in double", "[kernels][ssm]") {
  const Places places = places_of({1, 2, kScanChunk + 1, 2 * kScanChunk, 3});
  const ScanCase s{.rows = std::ssize(places), .channels = 2, .states = 3};
  ExactInputs in = exact_inputs(s);
  const Exact expected =
      differences_by({&in.u, &in.delta, &in.z, &in.b, &in.c, &in.a_log, &in.d, &in.bias},
                     [&] { return dot(plain_scan(s, in, places), s.dy); });
  const Gradients gradients = gradients_of({s, places});
  require_near(gradients.all(), expected, 2e-5, "selective_scan_backward");
  CHECK(gradients.y == scan({s, places}).y);
}

TEST_CASE("selective_scan: a document has the same bits alone, and no thread changes any",
          "[kernels][ssm][P1]") {
  const Places places = places_of(kLengths);
  const ScanCase s{.rows = sum_of_lengths(), .channels = 130, .states = 16};
  const Piece all{s, places};
  require_same_bits([&](int threads) { return scan(all, threads).y; }, "selective_scan_forward");
  require_same_bits([&](int threads) { return gradients_of(all, threads).all(); },
                    "selective_scan_backward");
  const Scanned packed = scan(all);
  const Gradients together = gradients_of(all);
  Values dd = zeros(s.channels);
  std::int64_t first = 0;
  for (const std::int64_t length : kLengths) {
    INFO("a document of " << length << " rows");
    const Piece alone{s, places, first, length};
    const auto same = [&](const Values& of_all, const Values& of_one) {
      const std::int64_t cols = std::ssize(of_one) / length;
      return std::equal(of_one.begin(), of_one.end(), of_all.begin() + first * cols);
    };
    CHECK(same(packed.y, scan(alone).y));
    const Gradients apart = gradients_of(alone);
    CHECK(same(together.u, apart.u));
    CHECK(same(together.delta, apart.delta));
    CHECK(same(together.z, apart.z));
    CHECK(same(together.b, apart.b));
    CHECK(same(together.c, apart.c));
    for (std::int64_t i = 0; i < s.channels; ++i) {
      dd[at(i)] += apart.d[at(i)];
    }
    first += length;
  }
  CHECK(dd == together.d);
}

TEST_CASE("selective_scan: a text's next row has the bits of the whole", "[kernels][ssm][P1]") {
  const std::vector<std::int64_t> lengths = {5, 1, kScanChunk + 2, 3};
  const Places places = places_of(lengths);
  const Places texts = texts_of(lengths);
  const ScanCase s{.rows = std::ssize(places), .channels = 70, .states = 16};
  const Values whole = scan({s, places}).y;
  for (const std::int64_t filled : {1, 2, 40}) {
    Values states = untouched_values(std::ssize(lengths) * s.states * s.channels);
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
      for (std::int64_t t = 0; t < length;) {
        const std::int64_t count = t == 0 ? std::min(filled, length) : 1;
        const Piece piece{s, places, first + t, count};
        Values y = untouched_values(count * s.channels);
        run([&](Stream& stream) {
          cpu::selective_scan_forward(stream, {.in = piece.inputs(),
                                               .y = y.data(),
                                               .y_stride = s.channels,
                                               .states = {.data = states.data(),
                                                          .texts = texts.data() + piece.first,
                                                          .extend = t > 0}});
        });
        INFO("row " << t << " of " << length);
        REQUIRE(std::equal(y.begin(), y.end(), whole.begin() + piece.first * s.channels));
        t += count;
      }
      first += length;
    }
  }
}

TEST_CASE("selective_scan: steps from 0 to where every state is forgotten give no NaN",
          "[kernels][ssm]") {
  const Places places = places_of({5, kScanChunk + 3});
  ScanCase s{.rows = std::ssize(places), .channels = 17, .states = 16};
  const float deltas[] = {-1e4F, -200.0F, -88.0F, -17.0F, 0.0F, 19.0F, 21.0F, 90.0F, 1e4F};
  for (std::size_t i = 0; i < s.delta.size(); ++i) {
    s.delta[i] = deltas[i % std::size(deltas)];
  }
  std::fill(s.a_log.begin(), s.a_log.end(), 2.7F);
  const Scanned scanned = scan({s, places});
  require_near(scanned.y, plain_scan(s, exact_inputs(s), places), 1e-5, "y");
  const Gradients gradients = gradients_of({s, places});
  for (const float value : gradients.all()) {
    REQUIRE(std::isfinite(value));
  }
}

TEST_CASE("selective_scan: wrong params are refused", "[kernels][ssm]") {
  const auto stream = make_inline_stream(1);
  const Places places = places_of({3});
  const ScanCase s{.rows = 3, .channels = 2, .states = 2};
  Values y = zeros(s.rows * s.channels);
  SelectiveScanForwardParams p{
      .in = Piece{s, places}.inputs(), .y = y.data(), .y_stride = s.channels};
  p.in.states = kMostScanStates + 1;
  CHECK_THROWS_AS(cpu::selective_scan_forward(*stream, p), CheckFailed);
  p.in.states = s.states;
  p.in.b_stride = 1;
  CHECK_THROWS_AS(cpu::selective_scan_forward(*stream, p), CheckFailed);
  p.in.b_stride = s.b_stride;
  p.states.extend = true;
  CHECK_THROWS_AS(cpu::selective_scan_forward(*stream, p), CheckFailed);
  const Gradients g = gradients_of({s, places});
  SelectiveScanBackwardParams back{.in = Piece{s, places}.inputs()};
  CHECK_THROWS_AS(cpu::selective_scan_backward(*stream, back), CheckFailed);
}

}  // namespace train::kernels::testing::selective_scan_test
