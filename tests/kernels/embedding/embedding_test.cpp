#include "kernels/embedding/embedding.hpp"

#include "base/check.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::embedding_test {
namespace {

std::vector<std::int32_t> random_tokens(std::int64_t rows, std::int64_t vocab) {
  std::mt19937 generator(7);
  std::vector<std::int32_t> tokens(at(rows));
  for (std::int32_t& token : tokens) {
    // Half the positions hold one token: a long group beside many short ones.
    const bool common = generator() % 2 == 0;
    token = common ? 0 : static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab));
  }
  return tokens;
}

/// Adds to `start`, or overwrites when there is none.
Values backward(const std::vector<std::int32_t>& tokens, const Values& dout, std::int64_t cols,
                std::int64_t vocab, int threads, const Values& start = {}) {
  Values dweight = start.empty() ? untouched_values(vocab * cols) : start;
  run(
      [&](Stream& stream) {
        cpu::embedding_backward(stream, {.tokens = tokens.data(),
                                         .dout = dout.data(),
                                         .dweight = dweight.data(),
                                         .rows = std::ssize(tokens),
                                         .cols = cols,
                                         .vocab = vocab,
                                         .accumulate = !start.empty()});
      },
      threads);
  return dweight;
}

TEST_CASE("embedding: forward copies rows, backward sums them in order", "[kernels][embedding]") {
  for (const std::int64_t cols : {1, 7, 64, 257}) {
    for (const std::int64_t rows : {1, 5, 130, 1000}) {
      constexpr std::int64_t vocab = 83;
      const auto tokens = random_tokens(rows, vocab);
      const Values weight = random_values(vocab * cols, 1);
      const Values dout = random_values(rows * cols, 2);
      Values expected_out;
      Values expected = zeros(vocab * cols);
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t first = tokens[at(i)] * cols;
        for (std::int64_t c = 0; c < cols; ++c) {
          expected_out.push_back(weight[at(first + c)]);
          expected[at(first + c)] += dout[at(i * cols + c)];  // Float sums in this order.
        }
      }
      for (const int threads : {1, 2, 3}) {
        Values out = zeros(rows * cols);
        run(
            [&](Stream& stream) {
              cpu::embedding_forward(stream, {.tokens = tokens.data(),
                                              .weight = weight.data(),
                                              .out = out.data(),
                                              .rows = rows,
                                              .cols = cols,
                                              .vocab = vocab});
            },
            threads);
        REQUIRE(out == expected_out);
        REQUIRE(backward(tokens, dout, cols, vocab, threads) == expected);
      }
    }
  }
}

TEST_CASE("embedding: an accumulating backward pass starts from what is there",
          "[kernels][embedding]") {
  constexpr std::int64_t vocab = 83, rows = 130, cols = 7;
  const auto tokens = random_tokens(rows, vocab);
  const Values dout = random_values(rows * cols, 2);
  const Values start = random_values(vocab * cols, 3);
  Values expected = start;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < cols; ++c) {
      expected[at(tokens[at(i)] * cols + c)] += dout[at(i * cols + c)];
    }
  }
  for (const int threads : {1, 2, 3}) {
    REQUIRE(backward(tokens, dout, cols, vocab, threads, start) == expected);
  }
  REQUIRE(backward({}, {}, cols, vocab, 2, start) == start);
}

TEST_CASE("embedding: no rows give a gradient of zeros", "[kernels][embedding]") {
  REQUIRE(backward({}, {}, 4, 3, 2) == zeros(12));
}

TEST_CASE("embedding: an id outside the vocabulary fails the stream and is named",
          "[kernels][embedding]") {
  const Values weight = zeros(10);
  Values out = zeros(6);
  for (const std::int32_t bad : {-1, 5}) {
    const std::vector<std::int32_t> tokens = {0, 4, bad};
    const auto forward = [&](Stream& stream) {
      cpu::embedding_forward(stream, {.tokens = tokens.data(),
                                      .weight = weight.data(),
                                      .out = out.data(),
                                      .rows = 3,
                                      .cols = 2,
                                      .vocab = 5});
    };
    REQUIRE_THROWS_AS(run(forward), CheckFailed);
    REQUIRE_THROWS_WITH(run(forward), Catch::Contains("token id " + std::to_string(bad)) &&
                                          Catch::Contains("position 2"));
    REQUIRE_THROWS_AS(backward(tokens, out, 2, 5, 2), CheckFailed);
  }
}

}  // namespace
}  // namespace train::kernels::testing::embedding_test
