#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/parity/published_models.hpp"
#include "tests/support/harness/fixture_file.hpp"

// Tiny models of every family with experts (fixtures/experts.json): their weights and tokens.
namespace train::engine::testing {

using Json = nlohmann::json;

inline const Json& expert_models() {
  static const Json read = test::read_fixture("experts.json");
  return read;
}

inline std::vector<std::string> expert_cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : expert_models().at("cases").items()) {
    names.push_back(name);
  }
  return names;
}

/// The weights of the script: those of dense models, a mean of the embedding, and its routers.
inline void fill_experts(const Json& entry, const Parameter& parameter, std::span<float> out) {
  fill_by_formula(parameter, /*gemma=*/false, out);
  if (parameter.name.ends_with("embed_tokens.weight")) {
    std::transform(out.begin(), out.end(), out.begin(), [](float x) { return x + 0.14F; });
  }
  if (const auto router = entry.at("routers").find(parameter.name);
      router != entry.at("routers").end()) {
    std::ranges::copy(router->get<std::vector<float>>(), out.begin());
  }
}

inline std::int32_t token_of(const Json& entry, std::int64_t row, std::int64_t shift) {
  const auto vocab = entry.at("config").at("vocab_size").get<std::int32_t>();
  return (token_by_formula(entry, row, shift) + entry.at("shift").get<std::int32_t>()) % vocab;
}

inline WorldStep::ReadLane tokens_of(const Json& entry) {
  return [&entry](std::int64_t, std::int64_t, std::int32_t* tokens, std::int32_t* targets) {
    for (std::int64_t row = 0; row < rows_of(entry); ++row) {
      tokens[row] = token_of(entry, row, 0);
      targets[row] = token_of(entry, row, 1);
    }
  };
}

}  // namespace train::engine::testing
