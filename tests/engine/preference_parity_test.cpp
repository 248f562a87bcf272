// Every objective of pairs against torch in float64 (tests/reference/make_preference_fixtures.py).
// Tolerance: 1e-5 of a tensor's largest element.

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/published_gradients.hpp"
#include "tests/engine/published_summary.hpp"

namespace train::engine {
namespace {

using Json = nlohmann::json;
using testing::check_gradients;
using testing::check_summary;
using testing::kTolerance;

const Json& fixture() {
  static const Json json = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                       "/tests/reference/fixtures/preferences.json");
    return Json::parse(file);
  }();
  return json;
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : fixture().at("cases").items()) {
    names.push_back(name);
  }
  return names;
}

WorldStep::Options options_of(const Json& entry) {
  WorldStep::Options options =
      testing::published_options(testing::published_model(entry.at("model")));
  const Json& given = entry.at("options");
  options.objective.name = entry.at("objective");
  if (!entry.at("loss").get<std::string>().empty()) {
    options.objective.loss = entry.at("loss");
  }
  options.objective.beta = given.at("beta");
  options.objective.label_smoothing = given.value("label_smoothing", 0.0);
  options.objective.gamma_beta_ratio = given.value("gamma_beta_ratio", 0.0);
  options.objective.discopop_tau = given.value("discopop_tau", 0.05);
  options.optimizer.lr = fixture().at("lr");
  options.model.z_loss_coeff = 0.0F;
  options.batch.lanes = static_cast<std::int64_t>(fixture().at("lanes").size());
  options.batch.micro_batch = 1;
  options.reference_documents = static_cast<std::int64_t>(entry.at("reference").size());
  double pairs = 0.0;
  for (const Json& lane : fixture().at("lanes")) {
    pairs += static_cast<double>(lane.size());
  }
  options.step_weight = [pairs](std::int64_t) { return pairs; };
  return options;
}

struct Answer {
  std::int64_t pair;
  std::int32_t side;
  std::int64_t prompt;
  std::int64_t length;  ///< With the prompt.
};

/// The script's formula.
std::int32_t token_of(const Answer& answer, std::int64_t at, std::int64_t vocab) {
  const std::int64_t seed = answer.pair * 31 + (at < answer.prompt ? 0 : 11 * (1 + answer.side));
  return static_cast<std::int32_t>((seed + at * at * 7 + at * 3 + 5) % vocab);
}

std::vector<Answer> answers_of(std::int64_t lane) {
  std::vector<Answer> answers;
  std::int64_t pair = 0;
  for (std::int64_t at = 0; at <= lane; ++at) {
    for (const Json& lengths : fixture().at("lanes")[static_cast<std::size_t>(at)]) {
      for (const std::int32_t side : {0, 1}) {
        if (at == lane) {
          const std::int64_t prompt = lengths[0];
          answers.push_back(
              {pair, side, prompt,
               prompt + lengths[static_cast<std::size_t>(1 + side)].get<std::int64_t>()});
        }
      }
      ++pair;
    }
  }
  return answers;
}

WorldStep::FillLane pairs_of(const WorldStep::Options& options) {
  return [options](std::int64_t /*step*/, std::int64_t lane, const LaneSlot& slot) {
    const bool prompts = options.objective.name == "orpo";
    std::fill(slot.tokens.begin(), slot.tokens.end(), 0);
    std::fill(slot.targets.begin(), slot.targets.end(), -1);
    std::fill(slot.positions.begin(), slot.positions.end(), 0);
    std::fill(slot.weights.begin(), slot.weights.end(), 0.0F);
    std::size_t row = 0;
    std::size_t next = 0;
    for (const Answer& answer : answers_of(lane)) {
      slot.sequences[next++] = {.item = answer.pair,
                                .document = 2 * answer.pair + answer.side,
                                .first = static_cast<std::int32_t>(row),
                                .rows = static_cast<std::int32_t>(answer.length),
                                .side = answer.side};
      for (std::int64_t at = 0; at < answer.length; ++at, ++row) {
        slot.tokens[row] = token_of(answer, at, options.model.vocab_size);
        slot.positions[row] = static_cast<std::int32_t>(at);
        const bool trained = at + 1 >= answer.prompt;
        if (at + 1 < answer.length && (trained || prompts)) {
          slot.targets[row] = token_of(answer, at + 1, options.model.vocab_size);
          slot.weights[row] = trained ? 1.0F : 0.0F;
        }
      }
    }
    slot.sequences[next] = {};
    for (std::int32_t position = 0; row < slot.positions.size(); ++row, ++position) {
      slot.positions[row] = position;
    }
  };
}

}  // namespace

TEST_CASE("preference parity: losses, metrics, gradients and five steps are torch's",
          "[engine][preference_parity]") {
  const std::string name = GENERATE(from_range(cases()));
  CAPTURE(name);
  const Json& entry = fixture().at("cases").at(name);
  const WorldStep::Options options = options_of(entry);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  testing::set_by_formula(world, testing::published_model(entry.at("model")));
  if (needs_reference(world.rank(0).rank_plan().objective())) {
    world.rank(0).reference().restore(entry.at("reference").get<std::vector<double>>());
  }
  const auto losses = entry.at("losses").get<std::vector<double>>();
  for (std::size_t step = 0; step < losses.size(); ++step) {
    CAPTURE(step);
    const StepResult result =
        world.run(*stream, static_cast<std::int64_t>(step), pairs_of(options));
    CHECK(std::abs(result.loss - losses[step]) <= kTolerance * std::abs(losses[0]));
    const auto metrics = entry.at("metrics")[step].get<std::vector<double>>();
    REQUIRE(result.metrics.size() == metrics.size());
    for (std::size_t metric = 0; metric < metrics.size(); ++metric) {
      CAPTURE(metric);
      // Log-probabilities of a dozen tokens, each of them rounded to float32.
      CHECK(std::abs(result.metrics[metric] - metrics[metric]) <=
            kTolerance * std::max(1.0, std::abs(metrics[4])));
    }
    if (step == 0) {
      check_gradients(world, entry.at("gradients"));
    }
  }
  for (const testing::GradientShard& shard : testing::gradients_of(world.rank(0))) {
    const Json& summary = entry.at("weights").at(shard.name);
    check_summary(shard.name, testing::state_of(world.rank(0), "model." + shard.name), summary,
                  kTolerance * summary.at(0).get<double>());
  }
}

}  // namespace train::engine
