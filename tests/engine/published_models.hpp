#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "tests/support/world_step.hpp"

namespace train::engine::testing {

/// fixtures/models.json: tiny models of every published family, as transformers computes them.
inline const nlohmann::json& published_models() {
  static const nlohmann::json fixture = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                       "/tests/reference/fixtures/models.json");
    return nlohmann::json::parse(file);
  }();
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

}  // namespace train::engine::testing
