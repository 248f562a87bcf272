// What Slurm tells a launcher: which node of how many it is.
#include "cli/submit/slurm_position.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

namespace train::cli::slurm_position_test {
namespace {

Environment step(const std::string& node, const std::string& tasks, const std::string& nodes) {
  return {{"SLURM_JOB_ID", "12"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_NODEID", node},
          {"SLURM_STEP_NUM_TASKS", tasks},
          {"SLURM_STEP_NUM_NODES", nodes}};
}

TEST_CASE("slurm position: one node needs no environment", "[cli][slurm_position]") {
  const auto position = find_position(1, {});
  REQUIRE(position.ok());
  CHECK(position->head());
  CHECK(position->nodes == 1);
  CHECK(position->ranks(3) == std::pair<std::int64_t, std::int64_t>(0, 3));
  // A batch script on two nodes that starts the program without srun: this node alone.
  CHECK(
      find_position(1, {{"SLURM_NNODES", "2"}, {"SLURM_NODEID", "0"}, {"SLURM_NTASKS", "2"}}).ok());
}

TEST_CASE("slurm position: a step says which node this is", "[cli][slurm_position]") {
  const auto position = find_position(3, step("2", "3", "3"));
  REQUIRE(position.ok());
  CHECK(position->node == 2);
  CHECK_FALSE(position->head());
  CHECK(position->start == "12.0.");
  auto again = step("2", "3", "3");
  again["SLURM_RESTART_COUNT"] = "1";
  CHECK(find_position(3, again)->start == "12.0.1");
}

TEST_CASE("slurm position: what does not fit is an error that names the variable",
          "[cli][slurm_position]") {
  struct Case {
    std::int64_t nodes;
    Environment environment;
    std::string names;
  };
  auto no_number = step("0", "2", "2");
  no_number.erase("SLURM_NODEID");
  const std::vector<Case> cases = {{2, {}, "SLURM_STEP_NUM_TASKS"},
                                   {2, no_number, "SLURM_NODEID"},
                                   {2, step("x", "2", "2"), "SLURM_NODEID"},
                                   {2, step("2", "2", "2"), "SLURM_NODEID"},
                                   {3, step("0", "3", "2"), "parallel.nodes = 3"},
                                   {1, step("0", "2", "2"), "parallel.nodes = 1"},
                                   {2, step("0", "8", "2"), "SLURM_STEP_NUM_TASKS = 8"},
                                   {1, step("0", "4", "1"), "SLURM_STEP_NUM_TASKS = 4"},
                                   {2, step("0", "2", "x"), "SLURM_STEP_NUM_NODES"}};
  for (const Case& wrong : cases) {
    INFO(wrong.names);
    const auto position = find_position(wrong.nodes, wrong.environment);
    REQUIRE_FALSE(position.ok());
    CHECK(position.error().kind == ErrorKind::user);
    CHECK(position.error().message.find(wrong.names) != std::string::npos);
    CHECK(position.error().message.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace train::cli::slurm_position_test
