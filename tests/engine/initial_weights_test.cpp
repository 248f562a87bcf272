#include "engine/model/initial_weights.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "engine/philox.hpp"
#include "tests/engine/small_model.hpp"

namespace train::engine {
namespace {

using Words = std::array<std::uint32_t, 4>;

Parameter matrix(const char* name, std::int64_t rows, std::int64_t cols) {
  return {.name = name, .rows = rows, .cols = cols};
}

std::vector<float> filled(const Parameter& parameter, const InitOptions& options,
                          std::int64_t first = 0, std::int64_t rows = -1) {
  rows = rows < 0 ? parameter.rows : rows;
  std::vector<float> out(static_cast<std::size_t>(rows * parameter.cols));
  fill_initial_rows(parameter, testing::small_shape(Architecture::enoki), options, first, rows,
                    out);
  return out;
}

}  // namespace

TEST_CASE("philox: known answers", "[engine][philox]") {
  // The generator's published test vectors (Random123, philox4x32 with 10 rounds).
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("initial weights: rows filled in pieces equal the whole", "[engine][initial_weights]") {
  const Parameter parameter = matrix("transformer.h.0.mlp.c_fc.weight", 37, 7);
  const InitOptions options{.seed = 5};
  const std::vector<float> whole = filled(parameter, options);
  const std::int64_t piece = GENERATE(1, 2, 5, 36);
  std::vector<float> joined;
  for (std::int64_t row = 0; row < parameter.rows; row += piece) {
    const auto part = filled(parameter, options, row, std::min(piece, parameter.rows - row));
    joined.insert(joined.end(), part.begin(), part.end());
  }
  CHECK(joined == whole);
}

TEST_CASE("initial weights: depend on seed and name", "[engine][initial_weights]") {
  const auto base = filled(matrix("a.weight", 20, 20), {.seed = 1});
  CHECK(filled(matrix("a.weight", 20, 20), {.seed = 1}) == base);
  CHECK(filled(matrix("a.weight", 20, 20), {.seed = 2}) != base);
  CHECK(filled(matrix("b.weight", 20, 20), {.seed = 1}) != base);
}

TEST_CASE("initial weights: are normal with the scheme's deviation", "[engine][initial_weights]") {
  const Parameter parameter = matrix("a.weight", 1000, 100);
  const std::vector<float> values = filled(parameter, {.seed = 11});
  double sum = 0.0;
  double squares = 0.0;
  double fourth = 0.0;
  double neighbours = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double z = static_cast<double>(values[i]) * 10.0;  // 1 / std = sqrt(100)
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
    neighbours += i == 0 ? 0.0 : z * static_cast<double>(values[i - 1]) * 10.0;
  }
  const auto count = static_cast<double>(values.size());
  CHECK(sum / count == Approx(0.0).margin(0.015));
  CHECK(squares / count == Approx(1.0).epsilon(0.02));
  CHECK(fourth / count == Approx(3.0).epsilon(0.05));
  CHECK(neighbours / count == Approx(0.0).margin(0.015));
}

TEST_CASE("initial weights: deviations by scheme", "[engine][initial_weights]") {
  const ModelShape shape = testing::small_shape(Architecture::enoki);  // 2 layers
  Parameter parameter = matrix("a.weight", 8, 25);
  const auto deviation = [&](InitKind kind, InitScheme scheme) {
    parameter.init = kind;
    return initial_std(parameter, shape, {.scheme = scheme, .init_std = 0.02});
  };
  CHECK(deviation(InitKind::linear, InitScheme::scaled_gpt) == Approx(0.2));
  CHECK(deviation(InitKind::residual_output, InitScheme::scaled_gpt) == Approx(0.1));
  CHECK(deviation(InitKind::embedding, InitScheme::scaled_gpt) == Approx(0.2));
  CHECK(deviation(InitKind::linear, InitScheme::karpathy_gpt2) == Approx(0.02));
  CHECK(deviation(InitKind::residual_output, InitScheme::karpathy_gpt2) == Approx(0.01));
  CHECK(deviation(InitKind::embedding, InitScheme::karpathy_gpt2) == Approx(0.02));
  CHECK(deviation(InitKind::residual_output, InitScheme::standard) == Approx(0.2));
  CHECK(deviation(InitKind::embedding, InitScheme::standard) == Approx(1.0));
  parameter.init = InitKind::norm;
  const auto ones = filled(parameter, {});
  CHECK(std::all_of(ones.begin(), ones.end(), [](float v) { return v == 1.0F; }));
}

}  // namespace train::engine
