// Steps of two passes: against torch in float64 (make_sequential_unlearning_fixtures.py), and the
// same bits whoever computes them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/weight_source.hpp"
#include "engine/objective/npo_weighting.hpp"
#include "engine/objective/registry.hpp"
#include "engine/objective/unlearning.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "tests/engine/parity/published_gradients.hpp"
#include "tests/engine/parity/published_summary.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::sequential_unlearning_test {
namespace {

using Json = nlohmann::json;
using testing::check_summary;
using testing::kSummaryTolerance;

const Json& fixture() {
  static const Json json = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                       "/tests/reference/fixtures/sequential_unlearning.json");
    return Json::parse(file);
  }();
  return json;
}

configs::ObjectiveSection objective_of(const Json& options) {
  configs::ObjectiveSection section;
  section.name = "sequential_unlearning";
  section.first_layer = fixture().at("first_layer");
  section.last_layer = fixture().at("last_layer");
  section.layer_stride = 1;
  section.steps_per_layer = fixture().at("steps_per_layer");
  section.retain_coefficient = fixture().at("retain_coefficient");
  section.forget_coefficient = fixture().at("forget_coefficient");
  section.forget_loss = options.at("forget_loss");
  section.gradient_join = options.at("gradient_join");
  section.frozen_layers = options.at("frozen_layers");
  section.maintain_unlearned = options.at("maintain_unlearned");
  section.ramp_retain_from_zero = options.at("ramp_retain_from_zero");
  section.forget_layer_scale = options.at("forget_layer_scale");
  section.retain_loss = options.value("retain_loss", "nll");
  section.beta = options.value("beta", 0.1);
  section.l2sp_coefficient = options.value("l2sp_coefficient", 0.0);
  section.top_k = options.value("top_k", std::int64_t{100});
  return section;
}

/// The script's formulas, of both streams.
WorldStep::FillLane rows_of(const WorldStep::Options& options, std::int64_t stream) {
  return [options, stream](std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    const std::int64_t vocab = options.model.vocab_size;
    const std::int64_t length = options.seq_len;
    const auto rows = static_cast<std::int64_t>(slot.tokens.size());
    for (std::int64_t at = 0; at < rows; ++at) {
      const std::int64_t row = lane * rows + at;
      const auto token = [&](std::int64_t shift) {
        const std::int64_t place =
            row / length * (length + 1) + row % length + shift + 100 * step + 17 * stream;
        return static_cast<std::int32_t>((place * place * 7 + place * 3 + 5 + 11 * stream) % vocab);
      };
      const auto index = static_cast<std::size_t>(at);
      slot.tokens[index] = token(0);
      slot.targets[index] = token(1);
      if (stream == 1) {
        slot.targets[index] =
            row % 3 == 1 ? -1 : static_cast<std::int32_t>((row * 37 + step * 5 + 3) % vocab);
      }
      slot.positions[index] = static_cast<std::int32_t>(row % length);
      slot.weights[index] = slot.targets[index] < 0 ? 0.0F : 1.0F;
    }
    // A document for each sequence.
    for (std::size_t i = 0; i < slot.sequences.size(); ++i) {
      const bool there = static_cast<std::int64_t>(i) < options.batch.micro_batch;
      slot.sequences[i] = {
          .first = static_cast<std::int32_t>(static_cast<std::int64_t>(i) * length),
          .rows = there ? static_cast<std::int32_t>(length) : 0};
    }
  };
}

/// What a frozen copy begins with, too.
class FormulaWeights final : public WeightSource {
 public:
  Status read_rows(const Parameter& parameter, std::int64_t first_row, std::int64_t /*rows*/,
                   std::span<float> out) const override {
    std::vector<float> all(static_cast<std::size_t>(parameter.rows() * parameter.cols()));
    testing::fill_by_formula(parameter, /*gemma=*/false, all);
    std::copy_n(all.begin() + first_row * parameter.cols(), out.size(), out.begin());
    return {};
  }
};

WorldStep::Options options_of(const Json& options) {
  auto world = testing::published_options(testing::published_model("gpt_neox"));
  world.objective = objective_of(options);
  world.train.freeze = options.value("freeze", std::vector<std::string>());
  world.total_steps = fixture().at("steps_per_layer").get<std::int64_t>() * 2;
  world.model.z_loss_coeff = 0.0F;
  const double rows =
      static_cast<double>(world.batch.lanes * world.batch.micro_batch * world.seq_len);
  world.init.source = std::make_shared<const FormulaWeights>();
  const bool of_documents = world.objective.forget_loss == "npo";
  world.step_weight = [rows, of_documents, length = world.seq_len](std::int64_t, std::size_t pass) {
    return pass == 0 ? rows : of_documents ? rows / static_cast<double>(length) : rows / 3.0 * 2.0;
  };
  return world;
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& [name, entry] : fixture().at("cases").items()) {
    names.push_back(name);
  }
  return names;
}

double metric(const WorldStep& world, const StepResult& result, const std::string& name) {
  const auto names = world.rank(0).rank_plan().objective().metric_names();
  const auto found = std::find(names.begin(), names.end(), name);
  REQUIRE(found != names.end());
  return result.metrics.at(static_cast<std::size_t>(found - names.begin()));
}

struct Trace {
  std::vector<double> values;  ///< Losses, norms and metrics of all steps.
  std::vector<std::uint64_t> digests;

  friend bool operator==(const Trace&, const Trace&) = default;
};

void add_steps(WorldStep& world, const WorldStep::Options& options, std::int64_t first,
               std::int64_t end, Trace& trace) {
  const auto stream = kernels::make_inline_stream(1);
  for (std::int64_t step = first; step < end; ++step) {
    const StepResult result =
        world.run_passes(*stream, step, {rows_of(options, 0), rows_of(options, 1)});
    REQUIRE_FALSE(result.nonfinite);
    trace.values.push_back(result.loss);
    trace.values.push_back(result.grad_norm);
    trace.values.insert(trace.values.end(), result.metrics.begin(), result.metrics.end());
    trace.digests.push_back(world.digest());
  }
}

WorldStep::Options small_options(const std::string& name = "max_entropy same_sign") {
  auto options = options_of(fixture().at("cases").at(name).at("options"));
  options.batch.lanes = 6;
  options.batch.micro_batch = 1;
  options.seq_len = 12;
  if (options.objective.forget_loss == "npo") {
    options.step_weight = [first = options.step_weight](std::int64_t step, std::size_t pass) {
      return pass == 0 ? first(step, pass) : 6.0;
    };
  }
  return options;
}

WorldStep::Options with(WorldStep::Options options, std::int64_t ranks, const std::string& strategy,
                        const std::string& sync = "auto") {
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = strategy == "hybrid" ? ranks : 0;
  options.parallel.sync = sync;
  return options;
}

Trace trace_of(const WorldStep::Options& options) {
  WorldStep world(kernels::cpu_backend(), options);
  Trace trace;
  add_steps(world, options, 0, options.total_steps, trace);
  return trace;
}

}  // namespace

TEST_CASE("sequential unlearning: both passes and six steps are torch's",
          "[engine][sequential_unlearning]") {
  const std::string name = GENERATE(from_range(cases()));
  CAPTURE(name);
  const Json& entry = fixture().at("cases").at(name);
  const WorldStep::Options options = options_of(entry.at("options"));
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  for (std::int64_t step = 0; step < options.total_steps; ++step) {
    CAPTURE(step);
    const StepResult result =
        world.run_passes(*stream, step, {rows_of(options, 0), rows_of(options, 1)});
    const auto near = [&](double found, const char* what) {
      CAPTURE(what);
      const double wanted = entry.at(what)[static_cast<std::size_t>(step)];
      CHECK(std::abs(found - wanted) <= kSummaryTolerance * std::max(1.0, std::abs(wanted)));
    };
    near(result.loss, "losses");
    near(result.grad_norm, "norms");
    near(metric(world, result, "retain_loss"), "retain_losses");
    near(metric(world, result, "forget_loss"), "forget_losses");
    near(metric(world, result, "retain_grad_norm"), "retain_norms");
    near(metric(world, result, "forget_grad_norm"), "forget_norms");
    // A bias of keys has a gradient of 0 in exact arithmetic: 64 of 28,000 signs are noise.
    CHECK(std::abs(metric(world, result, "same_sign_pct") -
                   entry.at("same_sign")[static_cast<std::size_t>(step)].get<double>()) < 0.3);
    CHECK(metric(world, result, "phase_layer") == (step < 3 ? 2.0 : 1.0));
    // Of the first step that has both. What a weight of 1 has moved is rounded to 2^-24 / lr.
    const bool moved = options.objective.forget_loss == "max_update";
    if (step == (moved ? 1 : 0)) {
      for (const testing::GradientShard& shard : testing::gradients_of(world.rank(0))) {
        if (entry.at("gradients").contains(shard.name)) {
          const Json& summary = entry.at("gradients").at(shard.name);
          check_summary(
              shard.name, testing::values_of(shard), summary,
              (moved ? 4 : 1) * kSummaryTolerance * std::max(summary.at(0).get<double>(), 0.01));
        }
      }
    }
  }
  const auto trained = [&](const std::string& parameter) {
    const bool frozen =
        std::any_of(options.train.freeze.begin(), options.train.freeze.end(),
                    [&](const std::string& pattern) { return matches_shell(pattern, parameter); });
    return !frozen && (parameter.find(".layers.2.") != std::string::npos ||
                       parameter.find(".layers.1.") != std::string::npos);
  };
  for (const testing::GradientShard& shard : testing::gradients_of(world.rank(0))) {
    CHECK(trained(shard.name) == (shard.rows > 0));  // Nothing else has a gradient.
    const Json& summary = entry.at("weights").at(shard.name);
    check_summary(shard.name, testing::state_of(world.rank(0), "model." + shard.name), summary,
                  kSummaryTolerance * summary.at(0).get<double>());
  }
}

TEST_CASE("sequential unlearning: ranks, strategy, gating and wrapping never show",
          "[engine][sequential_unlearning][EN-1]") {
  const Trace alone = trace_of(small_options());
  REQUIRE(alone.digests.front() != alone.digests.back());
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
      for (const char* sync : {"every_lane", "last_lane"}) {
        CAPTURE(ranks, strategy, sync);
        CHECK(trace_of(with(small_options(), ranks, strategy, sync)) == alone);
      }
    }
  }
  auto grouped = with(small_options(), 2, "full");
  grouped.parallel.wrapping = {"by_size"};
  grouped.parallel.wrap_min_parameters = 60000;
  REQUIRE(plan_of(grouped).value().groups().size() < 5);
  CHECK(trace_of(grouped) == alone);
}

TEST_CASE("sequential unlearning: nor do they where a frozen copy is compared with",
          "[engine][sequential_unlearning][EN-1]") {
  const std::string name = GENERATE("kl npo", "kl top_k_entropy", "l2sp", "l2", "l2 npo maintained",
                                    "max_update same_sign_forget");
  CAPTURE(name);
  const WorldStep::Options options = small_options(name);
  const Trace alone = trace_of(options);
  REQUIRE(alone.digests.front() != alone.digests.back());
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "full"}) {
      CAPTURE(ranks, strategy);
      CHECK(trace_of(with(options, ranks, strategy)) == alone);
    }
  }
}

TEST_CASE("sequential unlearning: at the frozen copy kl and l2 are 0 and npo log 2, to the bit",
          "[engine][sequential_unlearning]") {
  const std::string name = GENERATE("kl npo", "l2 npo maintained");
  const auto options = with(small_options(name), 2, "full");
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const StepResult first = world.run_passes(*stream, 0, {rows_of(options, 0), rows_of(options, 1)});
  CHECK(metric(world, first, "retain_loss") == 0.0);
  CHECK(metric(world, first, "retain_grad_norm") == 0.0);
  // Six documents, the sum of whose losses is rounded.
  CHECK(metric(world, first, "forget_loss") == Approx(std::log(2.0)).epsilon(1e-15));
  const StepResult second =
      world.run_passes(*stream, 1, {rows_of(options, 0), rows_of(options, 1)});
  CHECK(metric(world, second, "retain_loss") > 0.0);
  CHECK(metric(world, second, "forget_loss") < std::log(2.0));
}

TEST_CASE(
    "sequential unlearning: layers that a step leaves alone have gradients of 0, in its norm too",
    "[engine][sequential_unlearning]") {
  // All layers of the run hold gradients here, and those that are frozen now get an update.
  const std::string name = GENERATE("random_targets sum", "kl top_k_entropy", "l2");
  const std::int64_t ranks = GENERATE(1, 2);
  const auto options = with(small_options(name), ranks, ranks == 1 ? "none" : "full");
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const TrainingSchedule& schedule = *world.rank(0).rank_plan().objective().schedule();
  for (std::int64_t step = 0; step < options.total_steps; ++step) {
    CAPTURE(name, ranks, step);
    const StepResult result =
        world.run_passes(*stream, step, {rows_of(options, 0), rows_of(options, 1)});
    CHECK(metric(world, result, "forget_grad_norm/layer_2") > 0.0);
    double squares = 0.0;
    for (std::size_t unit = 0; unit < result.unit_grad_norms.size(); ++unit) {
      const double norm = result.unit_grad_norms[unit];
      CHECK((norm > 0.0) == schedule.trains(static_cast<std::int64_t>(unit) - 1, step));
      squares += norm * norm;
    }
    CHECK(result.grad_norm == Approx(std::sqrt(squares)).epsilon(1e-6));
  }
}

TEST_CASE("sequential unlearning: npo counts documents that have a target, each by its own mean",
          "[engine][sequential_unlearning]") {
  const NpoWeighting npo(0.5);
  // Two targets, none, one.
  const std::vector<LaneSequence> sequences = {
      {.first = 0, .rows = 3}, {.first = 3, .rows = 2}, {.first = 5, .rows = 1}};
  const std::vector<double> references = {-1.0, 0.0, -3.0};
  const std::vector<std::int32_t> targets = {4, -1, 2, -1, 7, 1};
  const std::vector<float> weights = {1.0F, 0.0F, 1.0F, 0.0F, 0.0F, 1.0F};
  const std::vector<float> log_probs = {-1.0F, 0.0F, -2.0F, 0.0F, -9.0F, -3.0F};
  std::vector<float> row_weights(6);
  LaneTerms terms;
  terms.row_weights = row_weights;
  LaneLogProbs lane;
  lane.sequences = sequences;
  lane.references = references;
  lane.targets = targets;
  lane.weights = weights;
  lane.log_probs = log_probs;
  npo.weigh(lane, terms);
  const ScalarLoss of_first = npo_loss(-1.0, 0.5);  // (-3 + 1) / 2
  CHECK(terms.items == 2.0);
  CHECK(terms.loss == Approx(of_first.loss + std::log(2.0)));
  const auto weight = static_cast<float>(-of_first.by_value / 2.0);
  CHECK(row_weights == std::vector<float>{weight, 0.0F, weight, 0.0F, 0.0F, -0.25F});
}

TEST_CASE(
    "sequential unlearning: what is not trained in any phase holds no state, and a plan says "
    "all bytes",
    "[engine][sequential_unlearning]") {
  const auto options = small_options();
  WorldStep world(kernels::cpu_backend(), options);
  CHECK(world.rank(0).allocated() == plan_memory(options));
  CHECK(plan_memory(options).reference_bytes == 0);
  for (const std::int64_t ranks : {1, 2}) {
    auto compared = with(small_options("kl npo"), ranks, "full");
    compared.objective.l2sp_coefficient = 0.1;
    WorldStep with_copy(kernels::cpu_backend(), compared);
    CHECK(with_copy.rank(0).allocated() == plan_memory(compared));
    CHECK(plan_memory(compared).reference_bytes > 0);
    // Outputs of one layer are compared, and of two.
    for (const char* name : {"l2", "l2 npo maintained", "max_update maintained"}) {
      const auto outputs = with(small_options(name), ranks, "full");
      WorldStep compares(kernels::cpu_backend(), outputs);
      CHECK(compares.rank(0).allocated() == plan_memory(outputs));
    }
  }
  auto all = options;
  all.objective = {};
  CHECK(plan_memory(options).optimizer_bytes < plan_memory(all).optimizer_bytes);
}

TEST_CASE("sequential unlearning: a plan refuses layers, steps and freezing that do not fit",
          "[engine][sequential_unlearning]") {
  const auto refusal = [](auto change) {
    auto options = small_options();
    change(options);
    const auto plan = plan_of(options);
    REQUIRE_FALSE(plan.ok());
    CHECK(plan.error().message.find('\n') == std::string::npos);
    return plan.error().message;
  };
  CHECK(refusal([](auto& options) { options.objective.first_layer = 3; }) ==
        "objective.first_layer is 3, but the model's layers are 0 to 2");
  CHECK(refusal([](auto& options) {
          options.objective.last_layer = 3;
        }).find("objective.last_layer is 3, above") == 0);
  CHECK(refusal([](auto& options) { options.total_steps = 7; }).find("set run.steps = 6") !=
        std::string::npos);
  CHECK(refusal([](auto& options) { options.lora.rank = 4; }).find("lora.rank is 4") == 0);
  CHECK(refusal([](auto& options) {
          options.objective.retain_coefficient = options.objective.forget_coefficient = 0.0;
        }).find("nothing to learn") != std::string::npos);
  CHECK(refusal([](auto& options) {
          options.train.freeze = {"block 1"};
        }).find("train.freeze leaves nothing of block 1") == 0);
}

TEST_CASE("sequential unlearning: phases, coefficients and updates are functions of the step",
          "[engine][sequential_unlearning]") {
  configs::ObjectiveSection section;
  section.name = "sequential_unlearning";
  section.first_layer = 31;
  section.last_layer = 8;
  section.steps_per_layer = 10;
  const auto made = make_objective(section);
  const TrainingSchedule& schedule = *made->schedule();
  CHECK(schedule.check(32, 60).ok());
  CHECK(schedule.ever_trains(31));
  CHECK(schedule.ever_trains(11));
  CHECK_FALSE(schedule.ever_trains(7));
  CHECK(schedule.trains(31, 9));
  CHECK_FALSE(schedule.trains(31, 10));
  CHECK(schedule.trains(27, 10));
  CHECK(schedule.update_number(27, 10) == 1);
  CHECK(schedule.update_number(31, 10) == 0);
  CHECK(made->passes(0).front().coefficient == 5.0);
  CHECK(made->passes(0).back().coefficient == 5.0);
  CHECK(made->passes(5).front().coefficient == Approx(20.0 * 0.625));
  section.frozen_layers = "zero";
  section.maintain_unlearned = true;
  const auto kept = make_objective(section);
  CHECK(kept->schedule()->update_number(31, 10) == 11);
  CHECK(kept->schedule()->trains(31, 59));
}

TEST_CASE("sequential unlearning: the search for NaN goes through both passes",
          "[engine][sequential_unlearning]") {
  const std::int64_t ranks = GENERATE(1, 3);
  const auto options = with(small_options(), ranks, ranks == 1 ? "none" : "full");
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto fill_finite = rows_of(options, 0);
  const auto forget = rows_of(options, 1);
  const auto fill_broken = [&](std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    forget(step, lane, slot);
    if (lane == 2) {
      std::fill(slot.weights.begin(), slot.weights.end(), std::numeric_limits<float>::quiet_NaN());
    }
  };
  const StepResult result = world.run_passes(*stream, 0, {fill_finite, fill_broken});
  CHECK(result.nonfinite);
  const auto origin = [&](const WorldStep::FillLane& fill, std::size_t pass) {
    return world.find_nonfinite(*stream, 0, fill, pass);
  };
  CHECK_FALSE(origin(fill_finite, 0).found);
  CHECK_FALSE(origin(fill_finite, 1).found);
  const NonfiniteOrigin second = origin(fill_broken, 1);
  CHECK(second.found);
  CHECK(second.lane == 2);
  CHECK(second.backward);
  CHECK(origin(fill_broken, 0).lane == 2);
}

}  // namespace train::engine::sequential_unlearning_test
