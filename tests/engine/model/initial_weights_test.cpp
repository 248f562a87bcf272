#include "engine/model/initial_weights.hpp"
#include "engine/model/model_shape.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/model/model.hpp"
#include "engine/philox.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::initial_weights_test {
namespace {

using Words = std::array<std::uint32_t, 4>;

Parameter matrix(const char* name, std::int64_t rows, std::int64_t cols) {
  return {.name = name, .shape = {rows, cols}};
}

std::vector<float> filled(const Parameter& parameter, const InitOptions& options,
                          std::int64_t first = 0, std::int64_t rows = -1) {
  rows = rows < 0 ? parameter.rows() : rows;
  std::vector<float> out(static_cast<std::size_t>(rows * parameter.cols()));
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

TEST_CASE("initial weights: a range is drawn between its bounds, whatever rows are asked for",
          "[engine][parameter]") {
  Parameter parameter{.name = "a.weight", .shape = {6, 5, 7}};
  REQUIRE(parameter.rows() == 6);
  REQUIRE(parameter.cols() == 35);
  parameter.init = Initializer::constant(-0.5);
  CHECK(filled(parameter, {.seed = 1}) == std::vector<float>(210, -0.5F));
  parameter.init = Initializer::uniform(2.0, 6.0);
  const std::vector<float> all = filled(parameter, {.seed = 1});
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  CHECK((*least >= 2.0F && *least < 2.2F));
  CHECK((*most <= 6.0F && *most > 5.8F));
  const std::vector<float> some = filled(parameter, {.seed = 1}, 2, 3);
  CHECK(std::equal(some.begin(), some.end(), all.begin() + 70));
}

TEST_CASE("initial weights: rows filled in pieces equal the whole", "[engine][initial_weights]") {
  const Parameter parameter = matrix("transformer.h.0.mlp.c_fc.weight", 37, 7);
  const InitOptions options{.seed = 5};
  const std::vector<float> whole = filled(parameter, options);
  const std::int64_t piece = GENERATE(1, 2, 5, 36);
  std::vector<float> joined;
  for (std::int64_t row = 0; row < parameter.rows(); row += piece) {
    const auto part = filled(parameter, options, row, std::min(piece, parameter.rows() - row));
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
  parameter.init = Initializer::constant(1.0);
  const auto ones = filled(parameter, {});
  CHECK(std::all_of(ones.begin(), ones.end(), [](float v) { return v == 1.0F; }));
}

namespace {

ModelShape wide_shape(Architecture architecture) {
  ModelShape shape = testing::small_shape(architecture);
  shape.layers = 3;
  shape.heads = 4;
  shape.embedding_dim = 48;  // Not heads * head_dim, so that no fan-in stands for another.
  shape.mlp_hidden = 80;
  shape.vocab_size = 200;
  return shape;
}

bool ends_with_any(const std::string& name, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](const char* end) { return name.ends_with(std::string(end) + ".weight"); });
}

/// The published table of schemes, by the names of the tensors alone.
double deviation_by_name(const std::string& name, const ModelShape& shape, InitScheme scheme) {
  const bool enoki = shape.architecture == Architecture::enoki;
  const double width = static_cast<double>(shape.embedding_dim);
  const double branches = 2.0 * static_cast<double>(shape.layers);
  if (name == "transformer.wte.weight") {
    return scheme == InitScheme::karpathy_gpt2 ? 0.03
           : scheme == InitScheme::standard    ? 1.0
                                               : 1.0 / std::sqrt(width);
  }
  const bool attention_output = ends_with_any(name, {enoki ? "attn.c_proj" : "o_proj"});
  const bool mlp_output = ends_with_any(name, {enoki ? "mlp.c_proj" : "down_proj"});
  const bool output = attention_output || mlp_output;
  const double fan_in = attention_output ? static_cast<double>(shape.heads * shape.head_dim)
                        : mlp_output     ? static_cast<double>(shape.mlp_hidden)
                                         : width;
  if (scheme == InitScheme::karpathy_gpt2) {
    return output ? 0.03 / std::sqrt(branches) : 0.03;
  }
  return scheme == InitScheme::scaled_gpt && output ? 1.0 / std::sqrt(branches * fan_in)
                                                    : 1.0 / std::sqrt(fan_in);
}

struct Drawn {
  std::string name;
  double deviation;
  std::vector<float> values;
};

/// Every matrix of the model; checks on the way that all vectors are ones.
std::vector<Drawn> draw_model(const ModelShape& shape, const InitOptions& options) {
  std::vector<Drawn> drawn;
  for (const UnitParameters& unit : describe_units(shape)) {
    for (const Parameter& parameter : unit.parameters) {
      std::vector<float> values(static_cast<std::size_t>(parameter.count()));
      fill_initial_rows(parameter, shape, options, 0, parameter.rows(), values);
      if (parameter.is_vector()) {
        CHECK(std::all_of(values.begin(), values.end(), [](float v) { return v == 1.0F; }));
      } else {
        drawn.push_back({parameter.name, initial_std(parameter, shape, options), values});
      }
    }
  }
  return drawn;
}

constexpr InitScheme kSchemes[] = {InitScheme::scaled_gpt, InitScheme::karpathy_gpt2,
                                   InitScheme::standard};

}  // namespace

TEST_CASE("initial weights: every tensor of both architectures has its scheme's deviation",
          "[engine][initial_weights]") {
  const auto architecture = GENERATE(Architecture::enoki, Architecture::dstar_qwen3);
  const ModelShape shape = wide_shape(architecture);
  for (const InitScheme scheme : kSchemes) {
    const auto drawn = draw_model(shape, {.seed = 4, .scheme = scheme, .init_std = 0.03});
    CHECK(drawn.size() == (architecture == Architecture::enoki ? 2U + 3 * 4 : 2U + 3 * 7));
    for (const Drawn& tensor : drawn) {
      CAPTURE(tensor.name, static_cast<int>(scheme));
      const double deviation = deviation_by_name(tensor.name, shape, scheme);
      CHECK(tensor.deviation == Approx(deviation).epsilon(1e-14));
      double sum = 0.0;
      double squares = 0.0;
      for (const float value : tensor.values) {
        sum += static_cast<double>(value) / deviation;
        squares += std::pow(static_cast<double>(value) / deviation, 2);
      }
      const auto count = static_cast<double>(tensor.values.size());
      CHECK(std::abs(sum / count) < 4.5 / std::sqrt(count));
      CHECK(std::abs(squares / count - 1.0) < 4.5 * std::sqrt(2.0 / count));
    }
  }
}

TEST_CASE("initial weights: tensors of one kind are independent", "[engine][initial_weights]") {
  const auto drawn = draw_model(wide_shape(Architecture::dstar_qwen3), {.seed = 4});
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::size_t count = std::min(drawn[i].values.size(), drawn[j].values.size());
      double product = 0.0;
      for (std::size_t k = 0; k < count; ++k) {
        product +=
            static_cast<double>(drawn[i].values[k]) * static_cast<double>(drawn[j].values[k]);
      }
      CAPTURE(drawn[i].name, drawn[j].name);
      CHECK(std::abs(product / drawn[i].deviation / drawn[j].deviation) <
            5.0 * std::sqrt(static_cast<double>(count)));
    }
  }
}

TEST_CASE("initial weights: stay what they are from version to version",
          "[engine][initial_weights]") {
  const auto digest = [](Architecture architecture, InitScheme scheme) {
    std::uint64_t hash = 0;
    for (const Drawn& tensor :
         draw_model(wide_shape(architecture), {.seed = 1337, .scheme = scheme})) {
      for (const float value : tensor.values) {
        hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 29U;
      }
    }
    return hash;
  };
  CHECK(digest(Architecture::enoki, InitScheme::scaled_gpt) == 0x5fba35f855cd1530U);
  CHECK(digest(Architecture::enoki, InitScheme::karpathy_gpt2) == 0xa41b9c2d967c51b4U);
  CHECK(digest(Architecture::enoki, InitScheme::standard) == 0xd61b16873860e4d3U);
  CHECK(digest(Architecture::dstar_qwen3, InitScheme::scaled_gpt) == 0x965f966cd89613c9U);
  CHECK(digest(Architecture::dstar_qwen3, InitScheme::karpathy_gpt2) == 0x4b22f02efc422db4U);
  CHECK(digest(Architecture::dstar_qwen3, InitScheme::standard) == 0x4fc51ccedbe91a93U);
}

}  // namespace train::engine::initial_weights_test
