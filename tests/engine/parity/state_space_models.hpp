#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/parity/published_models.hpp"
#include "tests/support/harness/fixture_file.hpp"

// Tiny models of every family of state spaces (fixtures/state_spaces.json): their weights and
// tokens.
namespace train::engine::testing {

inline const nlohmann::json& state_space_models() {
  static const nlohmann::json read = test::read_fixture("state_spaces.json");
  return read;
}

inline const nlohmann::json& state_space_model(const std::string& name) {
  return state_space_models().at("cases").at(name);
}

inline std::vector<std::string> state_space_cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : state_space_models().at("cases").items()) {
    names.push_back(name);
  }
  return names;
}

/// As expert_models.hpp's.
inline std::int32_t shifted_token(const nlohmann::json& entry, std::int64_t row,
                                  std::int64_t after) {
  const auto vocab = entry.at("config").at("vocab_size").get<std::int32_t>();
  return (token_by_formula(entry, row, after) + entry.at("shift").get<std::int32_t>()) % vocab;
}

inline WorldStep::ReadLane shifted_tokens(const nlohmann::json& entry) {
  return [&entry](std::int64_t, std::int64_t, std::int32_t* tokens, std::int32_t* targets) {
    for (std::int64_t row = 0; row < rows_of(entry); ++row) {
      tokens[row] = shifted_token(entry, row, 0);
      targets[row] = shifted_token(entry, row, 1);
    }
  };
}

/// The weights of the script: those of dense models, but for the biases of steps and the rates.
inline void fill_state_space(const nlohmann::json& entry, const Parameter& parameter,
                             std::span<float> out) {
  fill_by_formula(parameter, /*gemma=*/false, out);
  const auto shift = [&](const char* key) {
    const auto more = entry.at(key).get<float>();
    std::transform(out.begin(), out.end(), out.begin(), [=](float x) { return x + more; });
  };
  if (parameter.name.ends_with("dt_proj.bias") || parameter.name.ends_with("dt_proj.0.bias") ||
      parameter.name.ends_with("dt_bias")) {
    shift("step_shift");
  }
  if (parameter.name.ends_with("A_log") || parameter.name.ends_with("A_log.0")) {
    shift("rate_shift");
  }
}

}  // namespace train::engine::testing
