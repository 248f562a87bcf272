// The CUDA twin of the embedding's pass back: its sums are those of the CPU bitwise, whatever
// the tokens are.
#include <algorithm>
#include <random>

#include "kernels/device/stream.hpp"
#include "kernels/embedding/embedding.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_embedding_test {
namespace {

struct Tokens {
  std::string name;
  std::vector<std::int32_t> ids;
  std::int64_t vocab = 0;
};

Tokens make_tokens(const std::string& name, std::int64_t rows, std::int64_t vocab,
                   const std::function<std::int64_t(std::int64_t)>& id) {
  Tokens tokens{name, std::vector<std::int32_t>(at(rows)), vocab};
  for (std::int64_t i = 0; i < rows; ++i) {
    tokens.ids[at(i)] = static_cast<std::int32_t>(id(i));
  }
  return tokens;
}

/// One, two and three passes of the sort; tokens that come once, 64 times, 65 times and always;
/// more than a block of the sort has.
std::vector<Tokens> token_cases() {
  std::mt19937 generator(9);
  const auto random = [&](std::int64_t below) {
    return static_cast<std::int64_t>(generator() % static_cast<std::uint32_t>(below));
  };
  std::vector<Tokens> cases;
  cases.push_back(make_tokens("one", 1, 1, [](std::int64_t) { return 0; }));
  cases.push_back(make_tokens("all the same", 2300, 70, [](std::int64_t) { return 69; }));
  cases.push_back(make_tokens("all different", 2300, 2300,
                              [](std::int64_t i) { return (i * 1009 + 5) % 2300; }));
  cases.push_back(make_tokens("random", 5000, 600, [&](std::int64_t) { return random(600); }));
  cases.push_back(make_tokens("three passes", 700, 262144, [&](std::int64_t i) {
    return i % 3 == 0 ? 262143 : random(262144);
  }));
  cases.push_back(make_tokens("few frequent ones", 4500, 50304, [&](std::int64_t) {
    return random(2) == 0 ? random(3) * 512 : random(50304);
  }));
  for (const std::int64_t times : {63, 64, 65, 128, 129, 191}) {
    cases.push_back(make_tokens(fmt::format("each {} times", times), 7 * times, 9,
                                [times](std::int64_t i) { return (i * 5) % (7 * times) / times; }));
  }
  return cases;
}

void compare(const Tokens& tokens, std::int64_t cols, std::int64_t first, bool accumulate,
             float scale = 1.0F) {
  const std::int64_t rows = std::ssize(tokens.ids);
  // Of a large vocabulary the rows that may have been touched, and the next ones.
  const std::int64_t size = first + tokens.vocab * cols + 3;
  const auto what =
      fmt::format("{}, {} columns{}{}{}", tokens.name, cols, first == 0 ? "" : " from 1",
                  accumulate ? ", accumulate" : "", scale == 1.0F ? "" : ", scaled");
  compare_twins("embedding_backward", what, same_bits, same_bits, [&](Side& side) {
    const Values before = accumulate ? random_values(size, 2) : untouched_values(size);
    float* dweight = side.result(before) + first;
    side.kernels.embedding_backward(
        side.stream(), {.tokens = side.put(tokens.ids),
                        .dout = side.elements(random_values(first + rows * cols, 1)) + first,
                        .dweight = dweight,
                        .rows = rows,
                        .cols = cols,
                        .vocab = tokens.vocab,
                        .accumulate = accumulate,
                        .scale = scale,
                        .dtype = side.dtype});
  });
}

TEST_CASE("cuda twins: embedding backward adds in the order of positions",
          "[kernels][cuda][.gpu][P1]") {
  for (const Tokens& tokens : token_cases()) {
    compare(tokens, 8, 0, false);
    compare(tokens, 5, 0, true);
  }
}

TEST_CASE("cuda twins: embedding backward of every number of columns", "[kernels][cuda][.gpu]") {
  std::mt19937 generator(3);
  const Tokens tokens = make_tokens("300 tokens", 300, 40, [&](std::int64_t i) {
    return i % 3 == 0 ? 7 : static_cast<std::int64_t>(generator() % 31);  // Some never come.
  });
  for (const std::int64_t cols : {1, 4, 8, 63, 64, 72, 136, 261, 2056}) {
    for (const std::int64_t first : {0, 1}) {
      compare(tokens, cols, first, cols % 3 == 0);
      compare(tokens, cols, first, cols % 3 == 0, 33.9F);
    }
  }
}

TEST_CASE("cuda twins: embedding forward of every number of columns", "[kernels][cuda][.gpu]") {
  constexpr std::int64_t vocab = 40;
  const Tokens tokens =
      make_tokens("50 tokens", 50, vocab, [](std::int64_t i) { return i * 7 % vocab; });
  const std::int64_t rows = std::ssize(tokens.ids);
  const auto compare_forward = [&](std::int64_t cols, std::int64_t first, float scale) {
    const auto what =
        fmt::format("{} columns from {}{}", cols, first, scale == 1.0F ? "" : ", scaled");
    // A scaled row is rounded to bf16.
    const double bf16 = scale == 1.0F ? same_bits : bf16_rounding;
    compare_twins("embedding_forward", what, same_bits, bf16, [&](Side& side) {
      const auto weight = side.elements(random_values(first + vocab * cols, 1)) + first;
      const auto out = side.element_result(untouched_values(first + rows * cols + 3)) + first;
      side.kernels.embedding_forward(side.stream(), {.tokens = side.put(tokens.ids),
                                                     .weight = weight,
                                                     .out = out,
                                                     .rows = rows,
                                                     .cols = cols,
                                                     .vocab = vocab,
                                                     .scale = scale,
                                                     .dtype = side.dtype});
    });
  };
  for (const std::int64_t cols : {1, 4, 8, 261, 264, 2056}) {
    for (const std::int64_t first : {0, 1}) {
      compare_forward(cols, first, 1.0F);
      compare_forward(cols, first, 33.75F);
    }
  }
}

/// Rows of a kernel that was given unknown tokens: the fault is reported, and they are left out.
TEST_CASE("cuda twins: embedding leaves unknown tokens out, and says so", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  constexpr std::int64_t rows = 200;
  constexpr std::int64_t vocab = 16;
  constexpr std::int64_t cols = 8;
  for (const std::int32_t unknown : {-1, 16, 1 << 20}) {
    std::vector<std::int32_t> tokens(at(rows), 3);
    tokens[50] = unknown;
    Side side = cuda_side();
    const float* dout = side.put(Values(at(rows * cols), 1.0F));
    float* dweight = side.result(untouched_values(vocab * cols));
    side.kernels.embedding_backward(side.stream(), {.tokens = side.put(tokens),
                                                    .dout = dout,
                                                    .dweight = dweight,
                                                    .rows = rows,
                                                    .cols = cols,
                                                    .vocab = vocab});
    CHECK_THROWS_AS(side.results(), DeviceError);
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_embedding_test
