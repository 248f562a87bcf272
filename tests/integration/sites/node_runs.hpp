#pragma once

#include <memory>
#include <string>

#include "tests/integration/sites/rank_runs.hpp"

// Runs over two nodes, a launcher each, which a Slurm step would start. Here both are on this
// machine, told their places by the variables that Slurm sets.
namespace train::test {

/// Nodes of a run, and their ranks all together.
struct NodeShape {
  int nodes = 2;
  int ranks = 4;
  Words before = {};    ///< Of the launcher's command.
  bool patient = true;  ///< None of its processes falls silent (kPatient).
};

/// Starts the launcher of `node` in Slurm job `job`.
inline std::unique_ptr<Process> start_node(const RunSite& site, int node, int job,
                                           const Words& keys,
                                           const std::string& strategy = "hybrid",
                                           NodeShape shape = {}) {
  Words words =
      joined(shape.before, {"/usr/bin/env", fmt::format("SLURM_STEP_NUM_NODES={}", shape.nodes),
                            fmt::format("SLURM_STEP_NUM_TASKS={}", shape.nodes), "SLURM_STEP_ID=0",
                            fmt::format("SLURM_JOB_ID={}", job),
                            fmt::format("SLURM_NODEID={}", node)});
  words = joined(words, shape.patient ? Words{kPatient, program()} : Words{program()});
  const Words of_nodes = {fmt::format("parallel.nodes={}", shape.nodes), "parallel.interface=lo"};
  for (const std::string& word :
       RunSite::run_words(rank_keys(shape.ranks, strategy, joined(of_nodes, keys)))) {
    words.push_back(word);
  }
  return std::make_unique<Process>(words, site.path());
}

}  // namespace train::test
