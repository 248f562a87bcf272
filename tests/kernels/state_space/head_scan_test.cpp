#include "kernels/state_space/head_scan.hpp"

#include "base/check.hpp"
#include "tests/kernels/state_space_call.hpp"

namespace train::kernels::testing::head_scan_test {
namespace {

/// Lengths below, at and above the pieces and chunks of the backward pass.
const std::vector<std::int64_t> kHeadLengths = {1,
                                                2,
                                                kHeadPiece - 1,
                                                kHeadPiece,
                                                kHeadPiece + 1,
                                                kHeadChunk,
                                                kHeadChunk + 1,
                                                2 * kHeadChunk + 3};

std::int64_t rows_of(const std::vector<std::int64_t>& lengths) {
  return std::ssize(places_of(lengths));
}

/// Inputs of the formula in double, in the order of the gradients that gradients_of() gives.
struct ExactInputs {
  Exact x, b, c, delta, a_log, d, bias;
};

ExactInputs exact_inputs(const HeadCase& s) {
  return {
      .x = columns(s.xbc, s.rows, s.stride(), 0, s.inner()),
      .b = columns(s.xbc, s.rows, s.stride(), s.inner(), s.groups * s.states),
      .c = columns(s.xbc, s.rows, s.stride(), s.inner() + s.groups * s.states, s.groups * s.states),
      .delta = exact(s.delta),
      .a_log = exact(s.a_log),
      .d = exact(s.d),
      .bias = exact(s.bias)};
}

double plain_step(const HeadCase& s, const ExactInputs& in, std::int64_t row, std::int64_t head) {
  const double raw = in.delta[at(row * s.heads + head)] + in.bias[at(head)];
  return std::clamp(softplus(raw), static_cast<double>(s.least), static_cast<double>(s.most));
}

Exact plain_scan(const HeadCase& s, const ExactInputs& in, const Places& places) {
  Exact y(at(s.rows * s.inner()));
  for (std::int64_t head = 0; head < s.heads; ++head) {
    const std::int64_t group = head / (s.heads / s.groups);
    for (std::int64_t p = 0; p < s.width; ++p) {
      Exact h(at(s.states), 0.0);
      for (std::int64_t row = 0; row < s.rows; ++row) {
        if (places[at(row)] == 0) {
          std::fill(h.begin(), h.end(), 0.0);
        }
        const double step = plain_step(s, in, row, head);
        const double decay = std::exp(-step * std::exp(in.a_log[at(head)]));
        const double x = in.x[at(row * s.inner() + head * s.width + p)];
        double sum = in.d[at(head)] * x;
        for (std::int64_t n = 0; n < s.states; ++n) {
          const std::size_t place = at((row * s.groups + group) * s.states + n);
          h[at(n)] = decay * h[at(n)] + step * x * in.b[place];
          sum += in.c[place] * h[at(n)];
        }
        y[at(row * s.inner() + head * s.width + p)] = sum;
      }
    }
  }
  return y;
}

/// The states of a channel behind and before each row, [rows, states], in double.
struct ExactStates {
  Exact behind, before;
};

/// One channel's states, from the document's begin on.
ExactStates plain_states(const HeadCase& s, const ExactInputs& in, const Places& places,
                         std::int64_t head, std::int64_t p) {
  ExactStates result{Exact(at(s.rows * s.states)), Exact(at(s.rows * s.states))};
  const std::int64_t group = head / (s.heads / s.groups);
  for (std::int64_t row = 0; row < s.rows; ++row) {
    const double step = plain_step(s, in, row, head);
    const double decay = std::exp(-step * std::exp(in.a_log[at(head)]));
    const double x = in.x[at(row * s.inner() + head * s.width + p)];
    for (std::int64_t n = 0; n < s.states; ++n) {
      const std::size_t place = at(row * s.states + n);
      result.before[place] = places[at(row)] == 0 ? 0.0 : result.behind[place - at(s.states)];
      result.behind[place] = decay * result.before[place] +
                             step * x * in.b[at((row * s.groups + group) * s.states + n)];
    }
  }
  return result;
}

/// Adds one channel's gradients by the recurrence of the adjoint, without limits of steps.
void add_plain_gradients(const HeadCase& s, const ExactInputs& in, const Places& places,
                         std::int64_t head, std::int64_t p, ExactInputs& sums) {
  const ExactStates states = plain_states(s, in, places, head, p);
  const std::int64_t group = head / (s.heads / s.groups);
  const double rate = -std::exp(in.a_log[at(head)]);
  Exact carry(at(s.states), 0.0);
  for (std::int64_t row = s.rows - 1; row >= 0; --row) {
    const std::size_t place = at(row * s.inner() + head * s.width + p);
    const double raw = in.delta[at(row * s.heads + head)] + in.bias[at(head)];
    const double step = softplus(raw);
    const double decay = std::exp(step * rate);
    const double dy = s.dy[place];
    double of_b = 0.0;
    double of_decay = 0.0;
    for (std::int64_t n = 0; n < s.states; ++n) {
      const std::size_t bc = at((row * s.groups + group) * s.states + n);
      const std::size_t state = at(row * s.states + n);
      const double adjoint = in.c[bc] * dy + carry[at(n)];
      sums.c[bc] += dy * states.behind[state];
      sums.b[bc] += adjoint * step * in.x[place];
      of_b += adjoint * in.b[bc];
      of_decay += adjoint * states.before[state] * decay;
      carry[at(n)] = places[at(row)] == 0 ? 0.0 : decay * adjoint;
    }
    const double dstep = in.x[place] * of_b + rate * of_decay;
    const double ddelta = dstep / (1.0 + std::exp(-raw));
    sums.x[place] += step * of_b + in.d[at(head)] * dy;
    sums.delta[at(row * s.heads + head)] += ddelta;
    sums.bias[at(head)] += ddelta;
    sums.a_log[at(head)] += rate * step * of_decay;
    sums.d[at(head)] += dy * in.x[place];
  }
}

ExactInputs plain_gradients(const HeadCase& s, const Places& places) {
  const ExactInputs in = exact_inputs(s);
  ExactInputs sums = in;
  for (Exact* sum : {&sums.x, &sums.b, &sums.c, &sums.delta, &sums.a_log, &sums.d, &sums.bias}) {
    std::fill(sum->begin(), sum->end(), 0.0);
  }
  for (std::int64_t channel = 0; channel < s.inner(); ++channel) {
    add_plain_gradients(s, in, places, channel / s.width, channel % s.width, sums);
  }
  return sums;
}

/// Rows [first, first + rows) of a case.
struct Piece {
  const HeadCase& s;
  const Places& places;
  std::int64_t first = 0, rows = s.rows;

  [[nodiscard]] HeadScanInputs inputs() const {
    return s.inputs({.positions = places.data() + first, .sequences = 1, .seq_len = rows}, first);
  }
};

struct Scanned {
  Values y, kept;
};

Scanned scan(const Piece& piece, int threads = 2) {
  const HeadCase& s = piece.s;
  Scanned result{untouched_values(piece.rows * s.inner()),
                 untouched_values(head_scan_kept(piece.rows, s.inner() * s.states))};
  run(
      [&](Stream& stream) {
        cpu::head_scan_forward(stream, {.in = piece.inputs(),
                                        .y = result.y.data(),
                                        .y_stride = s.inner(),
                                        .kept = result.kept.data()});
      },
      threads);
  return result;
}

struct Gradients {
  Values x, b, c, delta, a_log, d, bias;

  [[nodiscard]] Values all() const { return joined({x, b, c, delta, a_log, d, bias}); }
};

Gradients gradients_of(const Piece& piece, int threads = 2) {
  const HeadCase& s = piece.s;
  const Values kept = scan(piece).kept;
  Values dxbc = untouched_values(piece.rows * s.stride());
  Gradients g{.x = {},
              .b = {},
              .c = {},
              .delta = untouched_values(piece.rows * s.heads),
              .a_log = untouched_values(s.heads),
              .d = untouched_values(s.heads),
              .bias = untouched_values(s.heads)};
  Values partial = untouched_values(head_scan_partial(piece.rows, s.heads, s.states));
  run(
      [&](Stream& stream) {
        cpu::head_scan_backward(stream, {.in = piece.inputs(),
                                         .kept = kept.data(),
                                         .dy = s.dy.data() + piece.first * s.inner(),
                                         .y_stride = s.inner(),
                                         .dx = dxbc.data(),
                                         .db = dxbc.data() + s.inner(),
                                         .dc = dxbc.data() + s.inner() + s.groups * s.states,
                                         .dx_stride = s.stride(),
                                         .ddelta = g.delta.data(),
                                         .da_log = g.a_log.data(),
                                         .dd = g.d.data(),
                                         .ddelta_bias = g.bias.data(),
                                         .partial = partial.data()});
      },
      threads);
  const std::int64_t bc = s.groups * s.states;
  g.x = columns_of(dxbc, piece.rows, s.stride(), 0, s.inner());
  g.b = columns_of(dxbc, piece.rows, s.stride(), s.inner(), bc);
  g.c = columns_of(dxbc, piece.rows, s.stride(), s.inner() + bc, bc);
  return g;
}

}  // namespace

TEST_CASE("head_scan: rows are those of the recurrence in double", "[kernels][ssm]") {
  const Places places = places_of(kHeadLengths);
  for (const std::int64_t states : {1, 16, 20}) {
    const HeadCase s{
        .rows = rows_of(kHeadLengths), .heads = 6, .groups = 2, .width = 5, .states = states};
    require_near(scan({s, places}).y, plain_scan(s, exact_inputs(s), places), 1e-5,
                 "head_scan_forward");
  }
}

TEST_CASE("head_scan: gradients are those of differences in double", "[kernels][ssm]") {
  const Places places = places_of({1, 2, kHeadPiece + 1, kHeadChunk + 3});
  for (const bool limits : {false, true}) {
    HeadCase s{.rows = std::ssize(places), .heads = 2, .groups = 1, .width = 2, .states = 3};
    if (limits) {  // Steps beyond both, and no step near either.
      s.least = 0.4F;
      s.most = 1.0F;
      for (std::size_t i = 0; i < s.delta.size(); ++i) {
        s.delta[i] = i % 3 == 0 ? -2.0F : i % 3 == 1 ? 0.2F : 2.5F;
      }
      std::fill(s.bias.begin(), s.bias.end(), 0.05F);
    }
    ExactInputs in = exact_inputs(s);
    const Exact expected =
        differences_by({&in.x, &in.b, &in.c, &in.delta, &in.a_log, &in.d, &in.bias},
                       [&] { return dot(plain_scan(s, in, places), s.dy); });
    require_near(gradients_of({s, places}).all(), expected, 2e-5, "head_scan_backward");
  }
}

// Sums of thousands of terms, by which the largest gradients grow: errors are of them.
TEST_CASE("head_scan: gradients are those of the recurrence in double", "[kernels][ssm]") {
  const Places places = places_of(kHeadLengths);
  const auto compare = [&](const HeadCase& s, const std::string& name) {
    INFO(name << ", " << s.states << " states of " << s.width << " channels");
    const ExactInputs expected = plain_gradients(s, places);
    const Gradients actual = gradients_of({s, places});
    const auto near = [](const Values& values, const Exact& wanted, const char* what) {
      double largest = 0.0;
      double error = 0.0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        largest = std::max(largest, std::abs(wanted[i]));
        error = std::max(error, std::abs(values[i] - wanted[i]));
      }
      INFO(what << ": error " << error << ", the largest " << largest);
      CHECK(error <= 1e-5 * largest);
    };
    near(actual.x, expected.x, "x");
    near(actual.b, expected.b, "b");
    near(actual.c, expected.c, "c");
    near(actual.delta, expected.delta, "delta");
    near(actual.a_log, expected.a_log, "a_log");
    near(actual.d, expected.d, "d");
    near(actual.bias, expected.bias, "bias");
  };
  for (const std::int64_t states : {1, 16, 20, 64}) {
    for (const std::int64_t width : {1, 5, 16, 20}) {
      HeadCase s{
          .rows = std::ssize(places), .heads = 4, .groups = 2, .width = width, .states = states};
      compare(s, "steps of one size");
      // A sum of a piece's exponents would lose the small steps behind a large one.
      for (std::size_t i = 0; i < s.delta.size(); ++i) {
        s.delta[i] = i % 37 < 4 ? 400.0F : i % 37 < 8 ? 3.0F : -5.0F;
      }
      compare(s, "small steps behind large ones");
    }
  }
}

TEST_CASE("head_scan: a document has the same bits alone, and no thread changes any",
          "[kernels][ssm][P1]") {
  const Places places = places_of(kHeadLengths);
  const HeadCase s{
      .rows = rows_of(kHeadLengths), .heads = 6, .groups = 2, .width = 8, .states = 24};
  const Piece all{s, places};
  require_same_bits([&](int threads) { return scan(all, threads).y; }, "head_scan_forward");
  require_same_bits([&](int threads) { return gradients_of(all, threads).all(); },
                    "head_scan_backward");
  const Scanned packed = scan(all);
  const Gradients together = gradients_of(all);
  Values dd = zeros(s.heads);
  std::int64_t first = 0;
  for (const std::int64_t length : kHeadLengths) {
    INFO("a document of " << length << " rows");
    const Piece alone{s, places, first, length};
    const auto same = [&](const Values& of_all, const Values& of_one) {
      const std::int64_t cols = std::ssize(of_one) / length;
      return std::equal(of_one.begin(), of_one.end(), of_all.begin() + first * cols);
    };
    CHECK(same(packed.y, scan(alone).y));
    const Gradients apart = gradients_of(alone);
    CHECK(same(together.x, apart.x));
    CHECK(same(together.b, apart.b));
    CHECK(same(together.c, apart.c));
    CHECK(same(together.delta, apart.delta));
    for (std::int64_t head = 0; head < s.heads; ++head) {
      dd[at(head)] += apart.d[at(head)];
    }
    first += length;
  }
  CHECK(dd == together.d);
}

TEST_CASE("head_scan: a text's next row has the bits of the whole", "[kernels][ssm][P1]") {
  const std::vector<std::int64_t> lengths = {5, 1, kHeadPiece + 2, 3};
  const Places places = places_of(lengths);
  const Places texts = texts_of(lengths);
  const HeadCase s{.rows = std::ssize(places), .heads = 4, .groups = 2, .width = 8, .states = 20};
  const Values whole = scan({s, places}).y;
  for (const std::int64_t filled : {1, 2, 40}) {
    Values states = untouched_values(std::ssize(lengths) * s.states * s.inner());
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
      for (std::int64_t t = 0; t < length;) {
        const std::int64_t count = t == 0 ? std::min(filled, length) : 1;
        const Piece piece{s, places, first + t, count};
        Values y = untouched_values(count * s.inner());
        run([&](Stream& stream) {
          cpu::head_scan_forward(stream, {.in = piece.inputs(),
                                          .y = y.data(),
                                          .y_stride = s.inner(),
                                          .states = {.data = states.data(),
                                                     .texts = texts.data() + piece.first,
                                                     .extend = t > 0}});
        });
        INFO("row " << t << " of " << length);
        REQUIRE(std::equal(y.begin(), y.end(), whole.begin() + piece.first * s.inner()));
        t += count;
      }
      first += length;
    }
  }
}

TEST_CASE("head_scan: steps from 0 to where every state is forgotten give no NaN",
          "[kernels][ssm]") {
  const Places places = places_of({5, kHeadPiece + 3});
  HeadCase s{.rows = std::ssize(places), .heads = 4, .groups = 1, .width = 3, .states = 5};
  const float deltas[] = {-1e4F, -200.0F, -88.0F, -17.0F, 0.0F, 19.0F, 21.0F, 90.0F, 1e4F};
  for (std::size_t i = 0; i < s.delta.size(); ++i) {
    s.delta[i] = deltas[i % std::size(deltas)];
  }
  std::fill(s.a_log.begin(), s.a_log.end(), 2.7F);
  const Values y = scan({s, places}).y;
  require_near(y, plain_scan(s, exact_inputs(s), places), 1e-5, "y");
  const Gradients gradients = gradients_of({s, places});
  for (const Values& values : {y, gradients.all()}) {
    for (const float value : values) {
      REQUIRE(std::isfinite(value));
    }
  }
}

TEST_CASE("head_scan: wrong params are refused", "[kernels][ssm]") {
  const auto stream = make_inline_stream(1);
  const Places places = places_of({3});
  const HeadCase s{.rows = 3, .heads = 2, .groups = 2, .width = 2, .states = 2};
  Values y = zeros(s.rows * s.inner());
  HeadScanForwardParams p{.in = Piece{s, places}.inputs(), .y = y.data(), .y_stride = s.inner()};
  p.in.groups = 3;
  CHECK_THROWS_AS(cpu::head_scan_forward(*stream, p), CheckFailed);
  p.in.groups = 2;
  p.in.states = kMostHeadStates + 1;
  CHECK_THROWS_AS(cpu::head_scan_forward(*stream, p), CheckFailed);
  p.in.states = s.states;
  p.in.least_step = 2.0F;
  p.in.most_step = 1.0F;
  CHECK_THROWS_AS(cpu::head_scan_forward(*stream, p), CheckFailed);
  HeadScanBackwardParams back{.in = Piece{s, places}.inputs()};
  CHECK_THROWS_AS(cpu::head_scan_backward(*stream, back), CheckFailed);
}

}  // namespace train::kernels::testing::head_scan_test
