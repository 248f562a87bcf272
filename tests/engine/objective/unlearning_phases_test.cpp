// Ranks that are for one phase of sequential unlearning: what they hold, and that it does not show.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "tests/engine/objective/unlearning_world.hpp"

namespace train::engine::unlearning_phases_test {
namespace {

WorldStep::Options options_of(std::int64_t ranks = 1, const std::string& strategy = "none") {
  auto options = testing::two_phases(ranks, strategy);
  options.objective.gradient_join = "same_sign_forget";
  return options;
}

/// Of stream 0 or 1.
WorldStep::FillLane rows_of(const WorldStep::Options& options, std::int64_t stream) {
  return testing::stream_rows(options, 3 * stream, 1.0F);
}

struct Trace {
  std::vector<double> values;  ///< Losses, norms and metrics of all steps.
  std::vector<std::uint64_t> digests;
};

bool is_norm(const std::string& metric) { return metric.find("_grad_norm") != std::string::npos; }

/// But for norms of both passes, which are of layers that hold gradients.
void add_steps(WorldStep& world, const WorldStep::Options& options, std::int64_t first,
               Trace& trace) {
  const auto stream = kernels::make_inline_stream(1);
  const auto names = world.rank(0).rank_plan().objective().metric_names();
  for (std::int64_t step = first; step < last_step_of(options); ++step) {
    const StepResult result =
        world.run_passes(*stream, step, {rows_of(options, 0), rows_of(options, 1)});
    REQUIRE_FALSE(result.nonfinite);
    trace.values.push_back(result.loss);
    trace.values.push_back(result.grad_norm);
    for (std::size_t i = 0; i < names.size(); ++i) {
      trace.values.push_back(is_norm(names[i]) ? 0.0 : result.metrics.at(i));
    }
    trace.digests.push_back(world.digest());
  }
}

void copy_weights(WorldStep& from, WorldStep& to, std::int64_t ranks) {
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    HostState source(from.rank(rank).device(), from.rank(rank).state().views());
    HostState target(to.rank(rank).device(), to.rank(rank).state().views());
    source.load();
    for (StateView& view : target.views()) {
      for (const StateView& saved : source.views()) {
        if (is_weight(view.name) && saved.name == view.name && saved.first_row == view.first_row) {
          REQUIRE(saved.size_bytes == view.size_bytes);
          std::copy_n(saved.data, saved.size_bytes, view.data);
        }
      }
    }
    target.store();
    to.rank(rank).state().finalize_restored();
  }
}

Trace trace_of(const WorldStep::Options& options) {
  WorldStep world(kernels::cpu_backend(), options);
  Trace trace;
  add_steps(world, options, 0, trace);
  return trace;
}

/// With ranks of their own for each phase.
Trace trace_by_phase(WorldStep::Options options) {
  Trace trace;
  std::unique_ptr<WorldStep> before;
  for (options.phase_step = 0; options.phase_step < options.total_steps;
       options.phase_step = last_step_of(options)) {
    auto world = std::make_unique<WorldStep>(kernels::cpu_backend(), options);
    if (before) {
      copy_weights(*before, *world, options.parallel.ranks);
    }
    add_steps(*world, options, options.phase_step, trace);
    before = std::move(world);
  }
  return trace;
}

std::vector<std::string> names_of_moments(const WorldStep& world) {
  std::vector<std::string> names;
  for (const StateView& view : world.rank(0).state().views()) {
    if (!is_weight(view.name)) {
      names.push_back(view.name);
    }
  }
  return names;
}

}  // namespace

TEST_CASE("unlearning phases: ranks for one hold state of its layer alone, as planned",
          "[engine][unlearning_phases]") {
  for (const std::int64_t ranks : {1, 2}) {
    for (const char* strategy : {"none", "gradient", "full"}) {
      CAPTURE(ranks, strategy);
      auto options = options_of(ranks, strategy);
      REQUIRE(keeps_state_by_phase(options));
      const MemoryPlan whole = plan_memory(options);
      std::size_t most = 0;
      for (const std::int64_t step : {1, 4}) {
        CAPTURE(step);
        options.phase_step = step;
        CHECK(last_step_of(options) == (step < 3 ? 3 : 6));
        const WorldStep world(kernels::cpu_backend(), options);
        const MemoryPlan planned = plan_memory(options);
        CHECK(world.rank(0).allocated() == planned);
        CHECK(planned.optimizer_bytes == whole.optimizer_bytes / 2);  // Of two layers one.
        CHECK(planned.gradients_bytes < whole.gradients_bytes);
        most = std::max(most, planned.total_bytes());
        const auto names = names_of_moments(world);
        CHECK_FALSE(names.empty());
        const std::string own = step < 3 ? ".h.1." : ".h.0.";
        CHECK(std::all_of(names.begin(), names.end(), [&](const std::string& name) {
          return name.find(own) != std::string::npos;
        }));
      }
      CHECK(plan_memory(largest_phase(options)).total_bytes() == most);
    }
  }
}

TEST_CASE("unlearning phases: they have the bits of ranks that are for the whole run",
          "[engine][unlearning_phases][EN-1]") {
  const std::string forget_loss = GENERATE("random_targets", "max_update");
  const auto options = [&](std::int64_t ranks, const char* strategy) {
    auto made = options_of(ranks, strategy);
    made.objective.forget_loss = forget_loss;
    return made;
  };
  const Trace alone = trace_of(options(1, "none"));
  REQUIRE(alone.digests.front() != alone.digests.back());
  for (const std::int64_t ranks : {1, 3}) {
    for (const char* strategy : {"none", "full"}) {
      CAPTURE(forget_loss, ranks, strategy);
      const Trace phases = trace_by_phase(options(ranks, strategy));
      CHECK(phases.digests == alone.digests);
      CHECK(phases.values == alone.values);
    }
  }
}

TEST_CASE("unlearning phases: what outlasts one is kept for the whole run",
          "[engine][unlearning_phases]") {
  const auto kept = [](auto change) {
    auto options = options_of();
    change(options);
    return keeps_state_by_phase(options);
  };
  CHECK(kept([](auto&) {}));
  CHECK_FALSE(kept([](auto& options) { options.objective.maintain_unlearned = true; }));
  CHECK_FALSE(kept([](auto& options) { options.objective.frozen_layers = "zero"; }));
  CHECK_FALSE(kept([](auto& options) { options.train.ema = 0.9; }));
  CHECK_FALSE(kept([](auto& options) { options.parallel.nodes = 2; }));
  CHECK_FALSE(kept([](auto& options) { options.objective = {}; }));
}

TEST_CASE("unlearning phases: which moments a state has is a function of the step",
          "[engine][unlearning_phases]") {
  auto options = options_of();
  CHECK(last_step_of(options) == options.total_steps);
  CHECK_FALSE(begins_phase(options, 3));  // Its ranks go on.
  options.phase_step = 3;
  CHECK(begins_phase(options, 3));
  CHECK_FALSE(begins_phase(options, 0));  // Nothing came before.
  CHECK_FALSE(begins_phase(options, 4));
  CHECK_FALSE(begins_phase(options, 6));  // The run is over.
  CHECK(goes_on_training(options, 1, 2));
  CHECK_FALSE(goes_on_training(options, 1, 3));
  CHECK_FALSE(goes_on_training(options, 0, 3));
  CHECK(goes_on_training(options, 0, 4));
  CHECK(goes_on_training(options, 0, 6));
  CHECK_FALSE(goes_on_training(options, -1, 4));
}

TEST_CASE("unlearning phases: a model of 6.9B parameters is planned at less than 30 GB",
          "[engine][unlearning_phases]") {
  RankOptions options;
  options.model =
      spec_from_config(R"({"model_type": "gpt_neox", "hidden_size": 4096, "num_hidden_layers": 32,
                           "num_attention_heads": 32, "intermediate_size": 16384,
                           "vocab_size": 50432, "max_position_embeddings": 2048,
                           "rotary_pct": 0.25, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
                           "use_parallel_residual": true, "tie_word_embeddings": false})",
                       "config.json", 512)
          .value();
  options.batch.lanes = 32;
  options.batch.micro_batch = 1;
  options.seq_len = 512;
  options.precision.compute = "bf16";
  options.knows_bf16 = true;
  options.total_steps = 192;
  options.objective.name = "sequential_unlearning";
  options.objective.first_layer = 31;
  options.objective.last_layer = 8;
  options.objective.steps_per_layer = 32;
  auto all = options;
  all.objective = {};
  const auto gigabytes = [](const RankOptions& of) {
    return static_cast<double>(plan_memory(of).total_bytes()) / 1e9;
  };
  const double by_phase = gigabytes(largest_phase(options));
  const double for_the_run = gigabytes(options);
  const double everything = gigabytes(all);
  CAPTURE(by_phase, for_the_run, everything);
  CHECK(by_phase > 13.7);  // The weights in bf16.
  CHECK(by_phase < 30.0);
  CHECK(by_phase < for_the_run);
  CHECK(everything > 110.0);
}

}  // namespace train::engine::unlearning_phases_test
