#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/model_shape.hpp"
#include "engine/parameter.hpp"

// What an independent PyTorch implementation computed in float64 (tests/reference), and how near to
// it results must be.
namespace train::engine::testing {

/// Of a tensor's largest element.
inline constexpr double kTolerance = 1e-5;

/// tests/reference/fixtures/<name>.json
inline nlohmann::json load_fixture(const std::string& name) {
  std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) + "/tests/reference/fixtures/" + name +
                     ".json");
  REQUIRE(file.good());
  return nlohmann::json::parse(file);
}

inline ModelShape read_shape(const nlohmann::json& json) {
  ModelShape shape;
  shape.architecture = json.at("arch").get<std::string>() == "qwen3" ? Architecture::dstar_qwen3
                                                                     : Architecture::enoki;
  shape.layers = json.at("layers");
  shape.heads = json.at("heads");
  shape.head_dim = json.at("head_dim");
  shape.embedding_dim = json.at("embedding_dim");
  shape.mlp_hidden = json.at("mlp_hidden");
  shape.vocab_size = json.at("vocab_size");
  shape.norm_eps = json.at("norm_eps");
  shape.rope_theta = json.at("rope_theta");
  shape.residual_scale = json.at("residual_scale");
  shape.z_loss_coeff = json.at("z_loss_coeff");
  shape.qk_norm = json.at("qk_norm");
  shape.output_gate = json.at("output_gate");
  shape.tie_embeddings = json.value("tie_embeddings", false);
  return shape;
}

/// A parameter of the fixture's "weights_1024ths".
inline void read_weights(const nlohmann::json& weights, const Parameter& parameter, float* out) {
  const auto values = weights.at(parameter.name).get<std::vector<int>>();
  REQUIRE(static_cast<std::int64_t>(values.size()) == parameter.count());
  std::transform(values.begin(), values.end(), out,
                 [](int value) { return static_cast<float>(value) / 1024.0F; });
}

/// Largest difference, as a share of the largest expected element; 1e30: some are not finite.
template <class Value>
double relative_error(const Value* actual, const nlohmann::json& expected_json) {
  const auto expected = expected_json.get<std::vector<double>>();
  double largest = 0.0;
  double difference = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(actual[i])) {
      return 1e30;
    }
    largest = std::max(largest, std::abs(expected[i]));
    difference = std::max(difference, std::abs(static_cast<double>(actual[i]) - expected[i]));
  }
  REQUIRE(largest > 0.0);
  return difference / largest;
}

}  // namespace train::engine::testing
