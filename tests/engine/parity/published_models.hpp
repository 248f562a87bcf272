#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "tests/support/harness/fixture_file.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::engine::testing {

/// fixtures/models.json: tiny models of every published family, as transformers computes them.
inline const nlohmann::json& published_models() {
  static const nlohmann::json fixture = test::read_fixture("models.json");
  return fixture;
}

inline const nlohmann::json& published_model(const std::string& name) {
  return published_models().at("cases").at(name);
}

inline std::vector<std::string> published_cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : published_models().at("cases").items()) {
    names.push_back(name);
  }
  return names;
}

/// One lane with the fixture's sequences, and its AdamW.
inline WorldStep::Options published_options(const nlohmann::json& entry) {
  const nlohmann::json& adamw = published_models().at("adamw");
  WorldStep::Options options;
  options.seq_len = entry.at("length");
  auto spec = spec_from_config(entry.at("config").dump(), "fixture", options.seq_len);
  REQUIRE(spec.ok());
  options.model = *spec;
  options.batch.lanes = 1;
  options.batch.micro_batch = published_models().at("sequences");
  options.total_steps = 10;
  options.schedule.name = "constant";
  options.parallel.wrapping = {"per_block"};
  options.optimizer.lr = adamw.at("lr");
  options.optimizer.beta1 = adamw.at("beta1");
  options.optimizer.beta2 = adamw.at("beta2");
  options.optimizer.eps = adamw.at("eps");
  options.optimizer.weight_decay = adamw.at("weight_decay");
  options.optimizer.grad_clip = adamw.at("grad_clip");
  return options;
}

/// CRC-32 of Ethernet, as Python's zlib has it.
inline std::uint32_t crc32_of(const std::string& text) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char letter : text) {
    crc ^= static_cast<unsigned char>(letter);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
    }
  }
  return ~crc;
}

/// The weights of the fixture's formula.
inline void fill_by_formula(const Parameter& parameter, bool gemma, std::span<float> out) {
  const double step = 0.1 + static_cast<double>(crc32_of(parameter.name) % 1000) / 1000.0;
  const bool bias = parameter.name.ends_with("bias");
  const double size = !parameter.is_vector()
                          ? 1.4 / std::sqrt(static_cast<double>(parameter.cols()))
                      : bias ? 0.4
                             : 0.5;
  const double centre = parameter.is_vector() && !bias && !gemma ? 1.0 : 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<double>(i + 1);
    out[i] = static_cast<float>(size * std::sin(step * at * at) + centre);
  }
}

inline bool is_gemma(const nlohmann::json& entry) {
  return entry.at("config").at("model_type").get<std::string>().starts_with("gemma");
}

/// Of sequence `row / length`; one more token than a lane has makes the last target.
inline std::int32_t token_by_formula(const nlohmann::json& entry, std::int64_t row,
                                     std::int64_t shift) {
  const std::int64_t length = entry.at("length");
  const std::int64_t at = row / length * (length + 1) + row % length + shift;
  return static_cast<std::int32_t>((at * at * 7 + at * 3 + 5) %
                                   entry.at("config").at("vocab_size").get<std::int64_t>());
}

inline std::int64_t rows_of(const nlohmann::json& entry) {
  return published_models().at("sequences").get<std::int64_t>() *
         entry.at("length").get<std::int64_t>();
}

inline WorldStep::ReadLane tokens_by_formula(const nlohmann::json& entry) {
  return [&entry](std::int64_t, std::int64_t, std::int32_t* tokens, std::int32_t* targets) {
    for (std::int64_t row = 0; row < rows_of(entry); ++row) {
      tokens[row] = token_by_formula(entry, row, 0);
      targets[row] = token_by_formula(entry, row, 1);
    }
  };
}

}  // namespace train::engine::testing
