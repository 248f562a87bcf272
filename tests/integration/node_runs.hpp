#pragma once

#include <memory>
#include <string>

#include "tests/integration/rank_runs.hpp"

// Runs over two nodes, a launcher each, which a Slurm step would start. Here both are on this
// machine, told their places by the variables that Slurm sets.
namespace train::test {

/// Starts the launcher of `node` of two, in Slurm job `job`. Four ranks.
inline std::unique_ptr<Process> start_node(const RunSite& site, int node, int job,
                                           const Words& keys,
                                           const std::string& strategy = "hybrid") {
  Words words = {"/usr/bin/env",
                 "SLURM_STEP_NODELIST=localhost,localhost",
                 "SLURM_STEP_NUM_TASKS=2",
                 "SLURM_STEP_ID=0",
                 fmt::format("SLURM_JOB_ID={}", job),
                 fmt::format("SLURM_NODEID={}", node),
                 program()};
  for (const std::string& word : RunSite::run_words(
           rank_keys(4, strategy, joined(keys, {"parallel.nodes=2", "parallel.interface=lo"})))) {
    words.push_back(word);
  }
  return std::make_unique<Process>(words, site.path());
}

}  // namespace train::test
