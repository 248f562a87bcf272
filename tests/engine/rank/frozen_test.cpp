// Parameters that train.freeze names: the others learn as they would, and the frozen ones cost
// neither gradients nor state.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::frozen_test {
namespace {

using Options = WorldStep::Options;
using Patterns = std::vector<std::string>;

const Patterns kLowest = {"embedding", "block 0", "head"};  // block 1 alone is trained
const Patterns kMixed = {"*.mlp.*", "block 0", "lm_head.weight"};

Options options_of(const Patterns& freeze, std::int64_t ranks = 1,
                   const std::string& strategy = "none") {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 5;
  options.eval_lanes = 2;
  options.optimizer.weight_decay = 0.1;
  options.optimizer.grad_clip = 0.0;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = strategy == "hybrid" ? 2 : 0;
  options.train.freeze = freeze;
  return options;
}

std::map<std::string, std::vector<float>> gradients(const WorldStep& world) {
  std::map<std::string, std::vector<float>> values;
  for (const testing::GradientShard& shard : testing::gradients_of(world.rank(0))) {
    const auto all = testing::values_of(shard);
    if (!all.empty()) {
      values[shard.name].assign(all.begin(), all.end());
    }
  }
  return values;
}

/// Digests and norms of three steps, an evaluation and a probe for NaN.
std::vector<double> trace(const Options& options,
                          const kernels::KernelTable& kernels = kernels::cpu_backend()) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels, options);
  const auto text = testing::repeating_text(options);
  std::vector<double> values;
  for (std::int64_t step = 0; step < 3; ++step) {
    const StepResult result = world.run(*stream, step, text);
    REQUIRE_FALSE(result.nonfinite);
    values.insert(values.end(), {result.loss, result.grad_norm});
    values.insert(values.end(), result.unit_grad_norms.begin(), result.unit_grad_norms.end());
    const std::uint64_t digest = world.digest();
    values.push_back(static_cast<double>(digest >> 32U));
    values.push_back(static_cast<double>(digest & 0xffffffffU));
  }
  values.push_back(world.evaluate(*stream, text).cross_entropy);
  CHECK_FALSE(world.find_nonfinite(*stream, 3, text).found);
  return values;
}

std::size_t states_in(const std::vector<StateView>& views, const std::string& parameter) {
  return static_cast<std::size_t>(std::count_if(views.begin(), views.end(), [&](const auto& view) {
    return view.name.starts_with("optimizer.") && view.name.ends_with(parameter);
  }));
}

}  // namespace

TEST_CASE("frozen: what is trained has the gradient that it has beside nothing frozen",
          "[engine][frozen]") {
  const auto architecture = GENERATE(Architecture::enoki, Architecture::dstar_qwen3);
  const bool tied = GENERATE(false, true);
  const auto freeze =
      GENERATE(Patterns{"embedding", "block 0", "head"}, Patterns{"*.mlp.*", "*q_norm*"},
               Patterns{"block 1", "*ln_f*"}, Patterns{"head"}, Patterns{"embedding"});
  const auto stream = kernels::make_inline_stream(1);
  auto options = options_of({});
  options.model = testing::small_shape(architecture);
  options.model.tie_embeddings = tied;
  WorldStep all(kernels::cpu_backend(), options);
  const StepResult expected = all.run(*stream, 0, testing::repeating_text(options));
  options.train.freeze = freeze;
  if (!check_freeze(options).ok()) {
    return;  // A pattern of the other architecture.
  }
  WorldStep some(kernels::cpu_backend(), options);
  const StepResult result = some.run(*stream, 0, testing::repeating_text(options));
  CHECK(result.loss == expected.loss);
  const auto whole = gradients(all);
  const auto trained = gradients(some);
  CHECK(!trained.empty());
  CHECK(trained.size() < whole.size());
  for (const auto& [name, values] : trained) {
    INFO(name);
    CHECK(values == whole.at(name));
  }
}

TEST_CASE("frozen: the same bits at any ranks, strategy and synchronisation",
          "[engine][frozen][P1]") {
  for (const Patterns& freeze : {kLowest, kMixed}) {
    const auto alone = trace(options_of(freeze));
    for (const std::int64_t ranks : {2, 3, 4}) {
      for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
        if (strategy[0] == 'h' && ranks == 3) {
          continue;
        }
        for (const char* sync : {"every_lane", "last_lane"}) {
          CAPTURE(freeze, ranks, strategy, sync);
          Options options = options_of(freeze, ranks, strategy);
          options.parallel.sync = sync;
          CHECK(trace(options) == alone);
          options.parallel.wrapping = {"block *"};
          options.parallel.reshard = "never";
          CHECK(trace(options) == alone);
        }
      }
    }
  }
}

TEST_CASE("frozen: with bf16 weights too, where no masters stand beside the frozen ones",
          "[engine][frozen][P1]") {
  Options options = options_of(kMixed);
  options.precision.compute = "bf16";
  const auto alone = trace(options);
  for (const char* strategy : {"none", "optimizer", "full"}) {
    CAPTURE(strategy);
    options.parallel.ranks = 3;
    options.parallel.strategy = strategy;
    CHECK(trace(options) == alone);
  }
}

TEST_CASE("frozen: memory is as planned, and has nothing of what is frozen",
          "[engine][frozen][memory_plan]") {
  for (const char* compute : {"fp32", "bf16"}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
        if (strategy[0] == 'h' && ranks == 1) {
          continue;
        }
        for (const Patterns& freeze : {Patterns{}, kLowest, kMixed}) {
          CAPTURE(compute, ranks, strategy, freeze);
          Options options = options_of(freeze, ranks, strategy);
          options.precision.compute = compute;
          options.memory.offload = ranks == 4 ? "parameters" : "none";
          const MemoryPlan planned = plan_memory(options);
          const RankEngine engine(kernels::cpu_backend(), options);
          CHECK(engine.allocated() == planned);
        }
      }
    }
  }
  const MemoryPlan all = plan_memory(options_of({}));
  const MemoryPlan one_block = plan_memory(options_of(kLowest));
  const UnitParameters block = describe_units(options_of({}).model).at(2);
  CHECK(one_block.optimizer_bytes == 2 * sizeof(float) * block.element_count);
  CHECK(one_block.gradients_bytes == sizeof(float) * block.element_count);
  CHECK(one_block.parameters_bytes == all.parameters_bytes);
  CHECK(one_block.activations_bytes < all.activations_bytes);
}

TEST_CASE("frozen: nothing is gathered or reduced for what the backward pass does not reach",
          "[engine][frozen]") {
  Options options = options_of(kLowest, 2, "full");
  options.parallel.gather_credits = 1;  // Nothing stays from one visit to a later one.
  const auto plan = plan_of(options);
  REQUIRE(plan.ok());
  const BufferSchedule schedule(*plan, kTrainStep);
  for (std::size_t i = 0; i < schedule.visits().size(); ++i) {
    const Visit& visit = schedule.visits()[i];
    if (visit.backward) {
      CAPTURE(visit.unit);
      CHECK((schedule.gather_of(i) >= 0) == (visit.unit >= 2));
      CHECK((schedule.gradient_buffer_of(i) >= 0) == (visit.unit == 2));
    }
  }
  for (const CollectiveOp& op : expand(*plan, kTrainStep)) {
    if (op.kind == CollectiveKind::reduce) {
      CHECK(plan->groups()[static_cast<std::size_t>(op.group)].name == "block 1");
    }
  }
}

TEST_CASE("frozen: a world of other ranks resumes with the same bits from the weights and states",
          "[engine][frozen]") {
  const auto* const compute = GENERATE("fp32", "bf16");
  Options options = options_of(kMixed, 3, "full");
  options.precision.compute = compute;
  const auto stream = kernels::make_inline_stream(1);
  const auto text = testing::repeating_text(options);
  WorldStep saved(kernels::cpu_backend(), options);
  saved.run(*stream, 0, text);
  std::map<std::string, std::map<std::int64_t, std::vector<std::byte>>> rows;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    HostState state(saved.rank(rank).device(), saved.rank(rank).state().shard_views());
    state.load();
    for (const StateView& view : state.views()) {
      const auto row_bytes = view.size_bytes / static_cast<std::size_t>(view.rows);
      for (std::int64_t row = 0; row < view.rows; ++row) {
        const std::byte* from = view.data + static_cast<std::size_t>(row) * row_bytes;
        rows[view.name][view.first_row + row].assign(from, from + row_bytes);
      }
    }
  }
  Options other = options;
  other.init.seed = 99;
  other.parallel.ranks = 2;
  other.parallel.strategy = GENERATE("none", "optimizer", "full");
  WorldStep resumed(kernels::cpu_backend(), other);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    HostState state(resumed.rank(rank).device(), resumed.rank(rank).state().views());
    CHECK(states_in(resumed.rank(rank).state().views(), "h.1.mlp.c_fc.weight") == 0);
    CHECK(states_in(resumed.rank(rank).state().views(), "h.1.attn.c_attn.weight") >= 2);
    for (StateView& view : state.views()) {
      std::byte* to = view.data;
      for (std::int64_t row = 0; row < view.rows; ++row) {
        const auto& from = rows.at(view.name).at(view.first_row + row);
        to = std::copy(from.begin(), from.end(), to);
      }
    }
    state.store();
    resumed.rank(rank).state().finalize_restored();
  }
  CHECK(resumed.digest() == saved.digest());
  const StepResult next = resumed.run(*stream, 1, text);
  CHECK(next.loss == saved.run(*stream, 1, text).loss);
  CHECK(resumed.digest() == saved.digest());
}

TEST_CASE("frozen: a run that would train nothing is refused", "[engine][frozen]") {
  const Status refused = check_freeze(options_of({"*"}));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("train.freeze leaves nothing to train") == 0);
}

}  // namespace train::engine::frozen_test
