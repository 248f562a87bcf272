#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "configs/run_config.hpp"
#include "engine/rank/exec/rank_engine.hpp"

namespace train::sim {

/// A run of one rank as a plain loop over engine::WorldStep: what every schedule has to come to.
struct Reference {
  std::vector<engine::StepResult> steps;
  std::map<std::int64_t, engine::EvaluationResult> evaluations;  ///< By finished steps.
  std::vector<std::uint64_t> digests;                            ///< By finished steps.
};

/// That of this configuration, computed once. Who computes what does not count.
[[nodiscard]] const Reference& reference_of(const configs::RunConfig& config);

/// Writes what all simulated runs read: token files, and rows to retain and to forget in folders of
/// these names.
void write_tokens(const std::string& directory);

}  // namespace train::sim
