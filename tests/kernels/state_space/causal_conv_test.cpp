#include "kernels/state_space/causal_conv.hpp"

#include "base/check.hpp"
#include "tests/kernels/state_space_call.hpp"

namespace train::kernels::testing::causal_conv_test {
namespace {

constexpr std::int64_t kTaps[] = {1, 2, 3, 4, kMostTaps};

/// The formula in double, from all inputs: x [rows, channels], weight, bias (empty: none).
Exact plain_conv(const Exact& x, const Exact& weight, const Exact& bias, const Places& places,
                 std::int64_t taps, bool silu) {
  const auto rows = static_cast<std::int64_t>(places.size());
  const std::int64_t channels = std::ssize(x) / rows;
  Exact y(x.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t c = 0; c < channels; ++c) {
      double v = bias.empty() ? 0.0 : bias[at(c)];
      for (std::int64_t j = 0; j < taps; ++j) {
        const std::int64_t back = taps - 1 - j;
        v += back > places[at(row)] ? 0.0
                                    : weight[at(c * taps + j)] * x[at((row - back) * channels + c)];
      }
      y[at(row * channels + c)] = silu ? v / (1.0 + std::exp(-v)) : v;
    }
  }
  return y;
}

struct Convolved {
  std::int64_t channels = 0, taps = 0;
  bool bias = true, silu = true;
  Places places;

  [[nodiscard]] std::int64_t rows() const { return std::ssize(places); }
  [[nodiscard]] Values weights() const { return random_values(channels * taps, 1); }
  [[nodiscard]] Values biases() const { return random_values(bias ? channels : 0, 2); }
  [[nodiscard]] DocumentRows documents(std::int64_t first = 0, std::int64_t count = 0) const {
    return {
        .positions = places.data() + first, .sequences = 1, .seq_len = count == 0 ? rows() : count};
  }

  [[nodiscard]] Values forward(const Values& x, int threads = 2, std::int64_t first = 0,
                               std::int64_t count = 0) const {
    const Values weight = weights();
    const Values b = biases();
    const DocumentRows documents_of = documents(first, count);
    Values y = untouched_values(documents_of.seq_len * channels);
    run(
        [&](Stream& stream) {
          cpu::causal_conv_forward(stream, {.rows = documents_of,
                                            .x = x.data() + first * channels,
                                            .weight = weight.data(),
                                            .bias = bias ? b.data() : nullptr,
                                            .y = y.data(),
                                            .channels = channels,
                                            .taps = taps,
                                            .x_stride = channels,
                                            .y_stride = channels,
                                            .silu = silu});
        },
        threads);
    return y;
  }

  /// dx, dweight and dbias; `in_place`: dx takes x's place.
  [[nodiscard]] Values backward(const Values& x, const Values& dy, int threads = 2,
                                bool in_place = false, std::int64_t first = 0,
                                std::int64_t count = 0) const {
    const Values weight = weights();
    const Values b = biases();
    const DocumentRows documents_of = documents(first, count);
    Values input(x.begin() + first * channels,
                 x.begin() + (first + documents_of.seq_len) * channels);
    Values dx = untouched_values(std::ssize(input));
    Values dweight = untouched_values(channels * taps);
    Values dbias = untouched_values(channels);
    run(
        [&](Stream& stream) {
          cpu::causal_conv_backward(stream, {.rows = documents_of,
                                             .x = input.data(),
                                             .weight = weight.data(),
                                             .bias = bias ? b.data() : nullptr,
                                             .dy = dy.data() + first * channels,
                                             .dx = in_place ? input.data() : dx.data(),
                                             .dweight = dweight.data(),
                                             .dbias = dbias.data(),
                                             .channels = channels,
                                             .taps = taps,
                                             .x_stride = channels,
                                             .y_stride = channels,
                                             .dx_stride = channels,
                                             .silu = silu});
        },
        threads);
    return joined({in_place ? input : dx, dweight, dbias});
  }
};

}  // namespace

TEST_CASE("causal_conv: each row sees its document's last rows, as in double", "[kernels][ssm]") {
  for (const std::int64_t taps : kTaps) {
    for (const bool silu : {false, true}) {
      const Convolved c{
          .channels = 70, .taps = taps, .bias = silu, .silu = silu, .places = places_of(kLengths)};
      const Values x = random_values(c.rows() * c.channels, 3);
      const Exact expected =
          plain_conv(exact(x), exact(c.weights()), exact(c.biases()), c.places, taps, silu);
      require_same_bits([&](int threads) { return c.forward(x, threads); }, "causal_conv_forward");
      // Sums of at most 9 terms of size 1.
      require_near(c.forward(x), expected, 1e-6, "causal_conv_forward");
    }
  }
}

TEST_CASE("causal_conv: gradients are those of differences in double", "[kernels][ssm]") {
  for (const std::int64_t taps : kTaps) {
    for (const bool silu : {false, true}) {
      const Convolved c{.channels = 3,
                        .taps = taps,
                        .bias = silu,
                        .silu = silu,
                        .places = places_of({1, 2, 3, 4, 9})};
      const Values x = random_values(c.rows() * c.channels, 4);
      const Values dy = random_values(c.rows() * c.channels, 5);
      Exact input = exact(x);
      Exact weight = exact(c.weights());
      Exact bias = silu ? exact(c.biases()) : Exact(at(c.channels), 0.0);
      const Exact expected = differences_by({&input, &weight, &bias}, [&] {
        return dot(plain_conv(input, weight, bias, c.places, taps, silu), dy);
      });
      require_near(c.backward(x, dy), expected, 3e-6, "causal_conv_backward");
      REQUIRE(c.backward(x, dy) == c.backward(x, dy, 2, /*in_place=*/true));
    }
  }
}

TEST_CASE("causal_conv: a document has the same bits alone, and no thread changes any",
          "[kernels][ssm][P1]") {
  const Convolved c{.channels = 130, .taps = 4, .places = places_of(kLengths)};
  const Values x = random_values(c.rows() * c.channels, 6);
  const Values dy = random_values(c.rows() * c.channels, 7);
  require_same_bits([&](int threads) { return c.backward(x, dy, threads); },
                    "causal_conv_backward");
  const Values y = c.forward(x);
  const Values gradients = c.backward(x, dy);
  Values dbias_by_documents = zeros(c.channels);
  std::int64_t first = 0;
  for (const std::int64_t length : kLengths) {
    const auto same = [&](const Values& packed, const Values& alone) {
      return std::equal(alone.begin(), alone.begin() + length * c.channels,
                        packed.begin() + first * c.channels);
    };
    INFO("a document of " << length << " rows");
    CHECK(same(y, c.forward(x, 2, first, length)));
    const Values alone = c.backward(x, dy, 2, false, first, length);
    CHECK(same(gradients, alone));
    for (std::int64_t k = 0; k < c.channels; ++k) {
      dbias_by_documents[at(k)] += alone[alone.size() - at(c.channels) + at(k)];
    }
    first += length;
  }
  CHECK(std::equal(dbias_by_documents.begin(), dbias_by_documents.end(),
                   gradients.end() - c.channels));
}

TEST_CASE("causal_conv: a text's next row has the bits of the whole", "[kernels][ssm][P1]") {
  for (const std::int64_t taps : kTaps) {
    const std::vector<std::int64_t> lengths = {5, 1, 9, 3};
    const Convolved c{.channels = 20, .taps = taps, .places = places_of(lengths)};
    const Values x = random_values(c.rows() * c.channels, 8);
    const Values whole = c.forward(x);
    const Values weight = c.weights();
    const Values bias = c.biases();
    const Places texts = texts_of(lengths);
    for (const std::int64_t filled : {1, 2, 3, 4}) {
      Values states = untouched_values(std::ssize(lengths) * (taps - 1) * c.channels + 1);
      std::int64_t first = 0;
      for (const std::int64_t length : lengths) {
        for (std::int64_t t = 0; t < length;) {
          const std::int64_t count = t == 0 ? std::min(filled, length) : 1;
          const std::int64_t row = first + t;
          Values y = untouched_values(count * c.channels);
          run([&](Stream& stream) {
            cpu::causal_conv_forward(
                stream,
                {.rows = c.documents(row, count),
                 .x = x.data() + row * c.channels,
                 .weight = weight.data(),
                 .bias = bias.data(),
                 .y = y.data(),
                 .channels = c.channels,
                 .taps = taps,
                 .x_stride = c.channels,
                 .y_stride = c.channels,
                 .states = {.data = states.data(), .texts = texts.data() + row, .extend = t > 0}});
          });
          INFO("row " << t << " of " << length << ", " << taps << " taps");
          REQUIRE(std::equal(y.begin(), y.end(), whole.begin() + row * c.channels));
          t += count;
        }
        first += length;
      }
      CHECK(states.back() == untouched);
    }
  }
}

TEST_CASE("causal_conv: wrong params are refused", "[kernels][ssm]") {
  const auto stream = make_inline_stream(1);
  Values memory = zeros(64);
  const Places places = {0, 2, 3};
  CausalConvForwardParams p{.rows = {.sequences = 1, .seq_len = 2},
                            .x = memory.data(),
                            .weight = memory.data(),
                            .y = memory.data() + 32,
                            .channels = 4,
                            .taps = kMostTaps + 1,
                            .x_stride = 4,
                            .y_stride = 4};
  CHECK_THROWS_AS(cpu::causal_conv_forward(*stream, p), CheckFailed);
  p.taps = 2;
  p.y = p.x == nullptr ? nullptr : memory.data();
  CHECK_THROWS_AS(cpu::causal_conv_forward(*stream, p), CheckFailed);
  p.y = memory.data() + 32;
  p.states.extend = true;
  CHECK_THROWS_AS(cpu::causal_conv_forward(*stream, p), CheckFailed);
  p.states.extend = false;
  p.rows = {.positions = places.data(), .sequences = 1, .seq_len = 3};
  CHECK_THROWS_AS(
      [&] {
        cpu::causal_conv_forward(*stream, p);
        stream->synchronize();
      }(),
      CheckFailed);
}

}  // namespace train::kernels::testing::causal_conv_test
