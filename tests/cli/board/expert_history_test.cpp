#include "cli/board/expert_history.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

namespace train::cli::expert_history_test {
namespace {

using Json = nlohmann::json;

ExpertHistory::Loads loads_of(std::size_t layers, std::size_t experts, float load) {
  ExpertHistory::Loads loads(layers, std::vector<float>(experts, 1.0F));
  loads.back().back() = load;
  return loads;
}

std::vector<std::int64_t> steps_of(const ExpertHistory& history) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, loads] : history.steps()) {
    steps.push_back(step);
  }
  return steps;
}

}  // namespace

TEST_CASE("expert history: a thousand steps of 16 layers of 64 experts all remain", "[board]") {
  ExpertHistory history;
  for (int step = 1; step <= 1000; ++step) {
    history.add(step, loads_of(16, 64, static_cast<float>(step)));
  }
  REQUIRE(history.steps().size() == 1000);
  CHECK(history.steps().at(500).back().back() == 500.0F);
}

TEST_CASE("expert history: memory is bounded, and the first, the newest and even parts remain",
          "[board]") {
  const auto [layers, experts, interval] =
      GENERATE(std::tuple{2, 4, 1}, std::tuple{48, 128, 1}, std::tuple{64, 512, 7});
  ExpertHistory history;
  std::int64_t last = 0;
  for (int line = 0; line < 5000; ++line) {
    last = 10 + line * interval;
    history.add(last, loads_of(static_cast<std::size_t>(layers), static_cast<std::size_t>(experts),
                               static_cast<float>(last)));
    REQUIRE(history.steps().rbegin()->first == last);
  }
  const std::vector<std::int64_t> steps = steps_of(history);
  INFO(layers << " layers, " << experts << " experts, " << steps.size() << " steps");
  REQUIRE(steps.size() <= ExpertHistory::kMostSteps);
  REQUIRE(steps.size() * static_cast<std::size_t>(layers * experts) <= ExpertHistory::kMostLoads);
  CHECK(steps.front() == 10);
  std::int64_t least = last, most = 0;
  for (std::size_t at = 1; at + 1 < steps.size(); ++at) {
    least = std::min(least, steps[at] - steps[at - 1]);
    most = std::max(most, steps[at] - steps[at - 1]);
  }
  CHECK(most < 2 * least);
  for (const auto& [step, loads] : history.steps()) {
    REQUIRE(loads.back().back() == static_cast<float>(step));
  }
}

TEST_CASE("expert history: steps in any order stay within bounds, and the later loads count",
          "[board]") {
  std::mt19937_64 random(Catch::rngSeed());
  INFO("seed " << Catch::rngSeed());
  std::uniform_int_distribution<std::int64_t> any(0, 100'000);
  ExpertHistory history;
  std::int64_t newest = 0;
  for (int line = 0; line < 20'000; ++line) {
    const std::int64_t step = any(random);
    newest = std::max(newest, step);
    history.add(step, loads_of(1, 8, static_cast<float>(line)));
    REQUIRE(history.steps().size() <= ExpertHistory::kMostSteps);
    REQUIRE(history.steps().rbegin()->first == newest);
  }
  history.add(newest, loads_of(1, 8, 0.25F));
  CHECK(history.steps().rbegin()->second.back().back() == 0.25F);
}

TEST_CASE("expert history: as JSON one step's loads, the last up to the wanted one", "[board]") {
  ExpertHistory history;
  CHECK(Json::parse(expert_loads_json(history, {})) == Json::parse(R"({"steps":[]})"));
  history.add(10, {{0.5F, 1.5F}, {2.0F, 0.0F, 1.23456F}});
  history.add(20, {{1.0F, 1.0F}, {1.0F}});
  const Json first = Json::parse(R"({"steps":[10,20],"step":10,"loads":[[0.5,1.5],[2,0,1.235]]})");
  const Json second = Json::parse(R"({"steps":[10,20],"step":20,"loads":[[1,1],[1]]})");
  for (const std::int64_t wanted : {0, 10, 19}) {
    CHECK(Json::parse(expert_loads_json(history, wanted)) == first);
  }
  for (const std::int64_t wanted : {20, 30}) {
    CHECK(Json::parse(expert_loads_json(history, wanted)) == second);
  }
  CHECK(Json::parse(expert_loads_json(history, std::nullopt)) == second);
}

}  // namespace train::cli::expert_history_test
