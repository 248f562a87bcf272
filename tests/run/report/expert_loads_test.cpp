#include "run/report/expert_loads.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace train::run::expert_loads_test {
namespace {

using Metrics = std::vector<std::pair<std::string, double>>;

std::map<std::string, double> figures_of(const ExpertLoads& loads) {
  const auto figures = loads.figures();
  return {figures.begin(), figures.end()};
}

}  // namespace

TEST_CASE("expert loads: they are taken out of the metrics, layer by layer",
          "[run][expert_loads]") {
  Metrics metrics = {{"balance/switch_lane", 1.25},
                     {"expert_load/0/0", 1.5},
                     {"expert_load/0/1", 0.5},
                     {"expert_load/1/0", 2.0},
                     {"expert_load/1/1", 0.0}};
  const ExpertLoads loads = take_expert_loads(metrics);
  CHECK(metrics == Metrics{{"balance/switch_lane", 1.25}});
  CHECK(loads.layers == std::vector<std::vector<double>>{{1.5, 0.5}, {2.0, 0.0}});
}

TEST_CASE("expert loads: biases are taken out with them, and their range is a figure",
          "[run][expert_loads]") {
  Metrics metrics = {{"expert_load/0/0", 1.0},    {"expert_load/0/1", 1.0},
                     {"expert_bias_min/0", -0.5}, {"expert_bias_max/0", 0.25},
                     {"expert_load/1/0", 1.0},    {"expert_bias_min/1", -0.25},
                     {"expert_bias_max/1", 0.75}, {"perplexity", 2.0}};
  const ExpertLoads loads = take_expert_loads(metrics);
  CHECK(metrics == Metrics{{"perplexity", 2.0}});
  CHECK(loads.layers == std::vector<std::vector<double>>{{1.0, 1.0}, {1.0}});
  CHECK(loads.biases == std::vector<std::array<double, 2>>{{-0.5, 0.25}, {-0.25, 0.75}});
  const auto figures = figures_of(loads);
  CHECK(figures.at("expert_bias_min") == -0.5);
  CHECK(figures.at("expert_bias_max") == 0.75);
  CHECK_FALSE(figures_of({.layers = {{1.0}}}).contains("expert_bias_max"));
}

TEST_CASE("expert loads: none where no layer has experts", "[run][expert_loads]") {
  Metrics metrics = {{"load", 1.0}};
  CHECK(take_expert_loads(metrics).empty());
  CHECK(metrics == Metrics{{"load", 1.0}});
}

TEST_CASE("expert loads: figures of all layers", "[run][expert_loads]") {
  const auto even = figures_of({.layers = {{1.0, 1.0, 1.0, 1.0}}});
  CHECK(even.at("expert_load_max") == 1.0);
  CHECK(even.at("expert_load_min") == 1.0);
  CHECK(even.at("dead_experts") == 0.0);
  CHECK(even.at("expert_entropy") == Approx(1.0));
  // One of two has all rows of the second layer, whose entropy is 0.
  const auto uneven = figures_of({.layers = {{1.0, 1.0}, {2.0, 0.0}}});
  CHECK(uneven.at("expert_load_max") == 2.0);
  CHECK(uneven.at("expert_load_min") == 0.0);
  CHECK(uneven.at("dead_experts") == 1.0);
  CHECK(uneven.at("expert_entropy") == Approx(0.5));
  CHECK(ExpertLoads{.layers = {{0.12345, 1.9999}}}.rounded() ==
        std::vector<std::vector<double>>{{0.123, 2.0}});
}

}  // namespace train::run::expert_loads_test
