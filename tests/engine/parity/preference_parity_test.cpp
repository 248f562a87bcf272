// Every objective of pairs, and fine-tuning on their answers, against torch in float64
// (tests/reference/training/make_preference_fixtures.py). Tolerance: 1e-5 of a tensor's largest
// element.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/objective/answer_rows.hpp"

namespace train::engine::preference_parity_test {
namespace {

using Json = nlohmann::json;
using testing::Answer;

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
  options.objective.beta = given.value("beta", 0.1);
  options.objective.label_smoothing = given.value("label_smoothing", 0.0);
  options.objective.gamma_beta_ratio = given.value("gamma_beta_ratio", 0.0);
  options.objective.discopop_tau = given.value("discopop_tau", 0.05);
  options.optimizer.lr = fixture().at("lr");
  options.model.z_loss_coeff = 0.0F;
  options.batch.lanes = static_cast<std::int64_t>(fixture().at("lanes").size());
  options.batch.micro_batch = 1;
  options.reference_documents = static_cast<std::int64_t>(entry.at("reference").size());
  const double rejected_weight = given.value("rejected_weight", 0.0);
  double pairs = 0.0;
  double trained = 0.0;
  for (const Json& lane : fixture().at("lanes")) {
    pairs += static_cast<double>(lane.size());
    for (const Json& lengths : lane) {
      trained += lengths[1].get<double>() + rejected_weight * lengths[2].get<double>();
    }
  }
  const double weight = options.objective.name == "sft" ? trained : pairs;
  options.step_weight = [weight](std::int64_t, std::size_t) { return weight; };
  return options;
}

std::vector<Answer> answers_of(std::int64_t lane, float rejected_weight) {
  std::vector<Answer> answers;
  std::int64_t pair = 0;
  for (std::int64_t at = 0; at <= lane; ++at) {
    for (const Json& lengths : fixture().at("lanes")[static_cast<std::size_t>(at)]) {
      for (const std::int32_t side : {0, 1}) {
        if (at == lane) {
          const std::int64_t prompt = lengths[0];
          answers.push_back(
              {pair, 2 * pair + side, side, prompt,
               prompt + lengths[static_cast<std::size_t>(1 + side)].get<std::int64_t>(),
               side == 0 ? 1.0F : rejected_weight});
        }
      }
      ++pair;
    }
  }
  return answers;
}

WorldStep::FillLane pairs_of(const WorldStep::Options& options, float rejected_weight) {
  return [=](std::int64_t /*step*/, std::int64_t lane, const LaneSlot& slot) {
    testing::fill_answers(slot, answers_of(lane, rejected_weight), options.model.vocab_size,
                          options.objective.name == "orpo");
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
  testing::check_run(world, *stream, entry,
                     pairs_of(options, entry.at("options").value("rejected_weight", 1.0F)));
}

}  // namespace train::engine::preference_parity_test
