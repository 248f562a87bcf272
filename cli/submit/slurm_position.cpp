#include "cli/submit/slurm_position.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <string_view>

#include "cli/command.hpp"

namespace train::cli {
using run::NodePosition;
namespace {

constexpr std::int64_t kMostNodes = 65536;
constexpr const char* kStepNodes = "SLURM_STEP_NUM_NODES";

/// Required numeric variable.
Result<std::int64_t> number_in(const Environment& environment, const std::string& name) {
  const auto entry = environment.find(name);
  if (entry == environment.end()) {
    return user_error(fmt::format(
        "parallel.nodes is more than 1, but {} is not set; start with: srun --ntasks-per-node=1",
        name));
  }
  const auto value = integer_in(entry->second, 0, kMostNodes);
  if (!value) {
    return user_error(fmt::format("{} = '{}' is not a number of nodes", name, entry->second));
  }
  return *value;
}

std::string text(const Environment& environment, const std::string& name) {
  const auto entry = environment.find(name);
  return entry == environment.end() ? std::string() : entry->second;
}

/// A batch script counts as a task too, but not of a step.
bool in_step(const Environment& environment) { return environment.contains(kStepNodes); }

Result<NodePosition> position_in_step(std::int64_t nodes, const Environment& environment) {
  const auto node = TRAIN_TRY(number_in(environment, "SLURM_NODEID"));
  const auto tasks = TRAIN_TRY(number_in(environment, "SLURM_STEP_NUM_TASKS"));
  const auto count = TRAIN_TRY(number_in(environment, kStepNodes));
  if (count != nodes) {
    return user_error(
        fmt::format("parallel.nodes = {}, but {} = {}; make them equal", nodes, kStepNodes, count));
  }
  if (tasks != nodes) {
    return user_error(
        fmt::format("SLURM_STEP_NUM_TASKS = {} on {} nodes: the launcher runs once per node and "
                    "starts the ranks itself; use srun --ntasks-per-node=1",
                    tasks, nodes));
  }
  if (node >= nodes) {
    return user_error(fmt::format("SLURM_NODEID = {}, but {} is only {}", node, kStepNodes, count));
  }
  return NodePosition{.node = node, .nodes = nodes};
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (const std::size_t equals = line.find('='); equals != std::string_view::npos) {
      environment.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return environment;
}

Result<NodePosition> find_position(std::int64_t nodes, const Environment& environment) {
  NodePosition position;
  if (nodes > 1 || in_step(environment)) {
    if (!in_step(environment)) {
      return user_error(
          fmt::format("parallel.nodes = {}, but SLURM_STEP_NUM_TASKS is not set: no Slurm step "
                      "started this; use srun --ntasks-per-node=1, or parallel.nodes = 1",
                      nodes));
    }
    position = TRAIN_TRY(position_in_step(nodes, environment));
  }
  // A requeued job keeps its number; a batch script may start several steps.
  position.start =
      fmt::format("{}.{}.{}", text(environment, "SLURM_JOB_ID"), text(environment, "SLURM_STEP_ID"),
                  text(environment, "SLURM_RESTART_COUNT"));
  return position;
}

}  // namespace train::cli
