// KTO: against torch in float64 (tests/reference/training/make_kto_fixtures.py; tolerance 1e-5 of a
// tensor's largest element), and against itself at any number of ranks.

#include <bit>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/rank/exec/rank_memory.hpp"
#include "tests/engine/objective/answer_rows.hpp"

namespace train::engine::kto_test {
namespace {

using Json = nlohmann::json;

const Json& fixture() {
  static const Json json = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) + "/tests/reference/fixtures/kto.json");
    return Json::parse(file);
  }();
  return json;
}

/// The fixture's lanes, over and over.
const Json& examples_of(std::int64_t lane) {
  const Json& lanes = fixture().at("lanes");
  return lanes[static_cast<std::size_t>(lane) % lanes.size()];
}

WorldStep::Options options_of(const std::string& family, std::int64_t lanes) {
  WorldStep::Options options = testing::published_options(testing::published_model(family));
  const Json& given = fixture().at("options");
  options.objective.name = "kto";
  options.objective.beta = given.at("beta");
  options.objective.desirable_weight = given.at("desirable_weight");
  options.objective.undesirable_weight = given.at("undesirable_weight");
  options.optimizer.lr = fixture().at("lr");
  options.model.z_loss_coeff = 0.0F;
  options.batch.lanes = lanes;
  options.batch.micro_batch = 1;
  options.eval_lanes = lanes;
  options.reference_documents = 4 * lanes;
  options.step_weight = [lanes](std::int64_t, std::size_t) {
    return 2.0 * static_cast<double>(lanes);
  };
  return options;
}

WorldStep::FillLane examples(const WorldStep::Options& options) {
  return [options](std::int64_t /*step*/, std::int64_t lane, const LaneSlot& slot) {
    std::vector<testing::Answer> answers;
    std::int64_t item = 2 * lane;
    for (const Json& example : examples_of(lane)) {
      const std::int64_t prompt = example[0];
      for (const bool mismatched : {false, true}) {
        answers.push_back({.item = item,
                           .document = 2 * item + (mismatched ? 1 : 0),
                           .side = mismatched ? 2 : (example[3].get<bool>() ? 0 : 1),
                           .prompt = prompt,
                           .length = prompt + example[mismatched ? 2 : 1].get<std::int64_t>()});
      }
      ++item;
    }
    testing::fill_answers(slot, answers, options.model.vocab_size, /*prompts=*/false);
  };
}

}  // namespace

TEST_CASE("kto: loss, metrics, gradients and five steps are torch's", "[engine][kto]") {
  const std::string family = GENERATE("llama", "gpt_neox");
  CAPTURE(family);
  const Json& entry = fixture().at("cases").at(family);
  const WorldStep::Options options = options_of(family, 2);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  testing::set_by_formula(world, testing::published_model(family));
  world.rank(0).reference().restore(entry.at("reference").get<std::vector<double>>());
  testing::check_run(world, *stream, entry, examples(options));
}

TEST_CASE("kto: where the policy is the reference every example's loss is half its weight",
          "[engine][kto]") {
  WorldStep::Options options = options_of("llama", 4);
  options.objective.undesirable_weight = options.objective.desirable_weight = 1.0;
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  world.compute_reference(*stream, 0, examples(options));
  const StepResult first = world.run(*stream, 0, examples(options));
  CHECK(first.loss == 0.5);
  for (const std::size_t zero : {0U, 1U, 2U, 3U}) {
    CHECK(first.metrics[zero] == 0.0);
  }
  CHECK(first.grad_norm > 0.0);
  CHECK(world.run(*stream, 1, examples(options)).loss < 0.5);
}

TEST_CASE("kto: ranks and strategy never show", "[engine][kto][EN-1]") {
  const auto run = [](const WorldStep::Options& options) {
    const auto stream = kernels::make_inline_stream(1);
    WorldStep world(kernels::cpu_backend(), options);
    world.compute_reference(*stream, 0, examples(options));
    std::vector<std::uint64_t> trace;
    const auto add = [&](double value) { trace.push_back(std::bit_cast<std::uint64_t>(value)); };
    for (int step = 0; step < 3; ++step) {
      const StepResult result = world.run(*stream, step, examples(options));
      add(result.loss);
      add(result.grad_norm);
      std::for_each(result.metrics.begin(), result.metrics.end(), add);
      trace.push_back(world.digest());
    }
    const EvaluationResult evaluation = world.evaluate(*stream, examples(options));
    add(evaluation.cross_entropy);
    std::for_each(evaluation.metrics.begin(), evaluation.metrics.end(), add);
    return trace;
  };
  const WorldStep::Options options = options_of("llama", 4);
  const auto alone = run(options);
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "full"}) {
      CAPTURE(ranks, strategy);
      WorldStep::Options split = options;
      split.parallel.ranks = ranks;
      split.parallel.strategy = strategy;
      CHECK(run(split) == alone);
    }
  }
}

TEST_CASE("kto: the plan's memory is what is allocated", "[engine][kto]") {
  WorldStep::Options options = options_of("llama", 4);
  options.parallel.ranks = 2;
  options.lane_sequences = 6;
  const WorldStep world(kernels::cpu_backend(), options);
  CHECK(world.rank(0).allocated() == plan_memory(options));
}

}  // namespace train::engine::kto_test
