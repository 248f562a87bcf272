// Every optimizer at any number of ranks and any strategy: the same bits of weights, state and
// diagnostics after each step, and after a resume on another layout.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "configs/fields/optimizer_table.hpp"
#include "engine/optimizer/registry.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::optimizer_bits_test {
namespace {

using Options = WorldStep::Options;

constexpr std::int64_t kSteps = 4;

Options world_options(std::string_view optimizer) {
  auto options = testing::small_options(Architecture::enoki);
  options.model.vocab_size = 64;
  options.batch.lanes = 4;
  options.batch.micro_batch = 1;
  options.seq_len = 12;
  options.total_steps = kSteps;
  options.optimizer = configs::default_optimizer(optimizer);
  options.optimizer.lr = 5e-3;
  options.schedule.name = "cos";
  return options;
}

Options with(Options options, std::int64_t ranks, const std::string& strategy,
             std::int64_t group = 0) {
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = group;
  return options;
}

/// Every tensor of weights and state, whole, put together of what the ranks would save.
using WholeState = std::map<std::string, std::vector<std::byte>>;

std::size_t row_bytes(const StateView& view) {
  return view.size_bytes / static_cast<std::size_t>(view.rows);
}

WholeState state_of(const WorldStep& world) {
  WholeState state;
  std::map<std::string, std::int64_t> rows;
  for (std::int64_t rank = 0; rank < world.rank(0).plan().ranks(); ++rank) {
    for (const StateView& view : world.rank(rank).state().shard_views()) {
      auto& tensor = state[view.name];
      tensor.resize(static_cast<std::size_t>(view.global_shape[0]) * row_bytes(view));
      std::memcpy(tensor.data() + static_cast<std::size_t>(view.first_row) * row_bytes(view),
                  view.data, view.size_bytes);
      rows[view.name] += view.rows;
      CHECK(rows[view.name] <= view.global_shape[0]);
    }
  }
  for (const auto& [name, tensor] : state) {
    CHECK(!tensor.empty());
  }
  return state;
}

void restore(WorldStep& world, const WholeState& state) {
  for (std::int64_t rank = 0; rank < world.rank(0).plan().ranks(); ++rank) {
    std::set<std::string> named;
    for (const StateView& view : world.rank(rank).state().views()) {
      REQUIRE(state.count(view.name) == 1);
      named.insert(view.name);
      if (view.rows == 0) {
        continue;
      }
      std::memcpy(
          view.data,
          state.at(view.name).data() + static_cast<std::size_t>(view.first_row) * row_bytes(view),
          view.size_bytes);
    }
    REQUIRE(named.size() == state.size());  // As a checkpoint's reader wants it.
    world.rank(rank).state().finalize_restored();
  }
}

struct Trace {
  std::vector<std::uint64_t> digests;
  std::vector<std::uint64_t> values;  ///< Bits of losses, norms and diagnostics.
  WholeState state;

  friend bool operator==(const Trace&, const Trace&) = default;
};

/// Steps [first, end) of a world that begins with `state`, or with its seed.
Trace run(const Options& options, std::int64_t first = 0, std::int64_t end = kSteps,
          const WholeState* state = nullptr) {
  const auto stream = kernels::make_inline_stream(2);
  WorldStep world(kernels::cpu_backend(), options);
  if (state != nullptr) {
    restore(world, *state);
  }
  const auto text = testing::repeating_text(options);
  Trace trace;
  for (std::int64_t step = first; step < end; ++step) {
    const StepResult result = world.run(*stream, step, text);
    REQUIRE_FALSE(result.nonfinite);
    trace.digests.push_back(world.digest());
    for (const double value : {result.loss, result.grad_norm}) {
      trace.values.push_back(std::bit_cast<std::uint64_t>(value));
    }
    for (const auto& each : diagnose(world.rank(0).optimizer(), result.optimizer_sums)) {
      CHECK(std::isfinite(each.value));
      trace.values.push_back(std::bit_cast<std::uint64_t>(each.value));
    }
  }
  trace.state = state_of(world);
  return trace;
}

struct Layout {
  std::int64_t ranks;
  const char* strategy;
  std::int64_t group;
};

constexpr Layout kLayouts[] = {
    {1, "full", 0},      {2, "none", 0},     {2, "optimizer", 0}, {2, "gradient", 0},
    {2, "full", 0},      {2, "hybrid", 1},   {3, "none", 0},      {3, "optimizer", 0},
    {3, "gradient", 0},  {3, "full", 0},     {3, "hybrid", 3},    {4, "none", 0},
    {4, "optimizer", 0}, {4, "gradient", 0}, {4, "full", 0},      {4, "hybrid", 2}};

std::size_t index_of(const Optimizer& optimizer, std::string_view sum) {
  const auto names = optimizer.row_sums();
  const auto found = std::find(names.begin(), names.end(), sum);
  REQUIRE(found != names.end());
  return static_cast<std::size_t>(found - names.begin());
}

double value_of(const std::vector<OptimizerDiagnostic>& diagnostics, std::string_view name) {
  for (const OptimizerDiagnostic& each : diagnostics) {
    if (each.name == name) {
      return each.value;
    }
  }
  FAIL("no " << name);
  return 0.0;
}

}  // namespace

TEST_CASE("optimizer bits: ranks and strategies never show, whatever the optimizer",
          "[engine][.full][world_step][optimizer][EN-1]") {
  for (const RegisteredOptimizer& optimizer : registered_optimizers()) {
    const Options options = world_options(optimizer.name);
    const Trace alone = run(options);
    CHECK(alone.digests.front() != alone.digests.back());
    for (const Layout& layout : kLayouts) {
      CAPTURE(optimizer.name, layout.ranks, layout.strategy, layout.group);
      CHECK(run(with(options, layout.ranks, layout.strategy, layout.group)) == alone);
    }
  }
}

TEST_CASE("optimizer bits: nor do they with bf16 weights, other wrapping and tied embeddings",
          "[engine][.full][world_step][optimizer][EN-1]") {
  for (const char* name : {"dana-star-mk4", "muon", "d-muon"}) {
    Options options = world_options(name);
    options.precision.compute = "bf16";
    options.model.tie_embeddings = true;
    const Trace alone = run(options);
    options.parallel.wrapping = {"by_size"};
    options.parallel.wrap_min_parameters = 2000;
    for (const Layout& layout : kLayouts) {
      CAPTURE(name, layout.ranks, layout.strategy, layout.group);
      CHECK(run(with(options, layout.ranks, layout.strategy, layout.group)) == alone);
    }
  }
}

TEST_CASE("optimizer bits: a resume on any layout goes on as if nothing had been",
          "[engine][.full][world_step][optimizer][CK-4]") {
  struct Resume {
    Layout from, to;
  };
  for (const RegisteredOptimizer& optimizer : registered_optimizers()) {
    const Options options = world_options(optimizer.name);
    const Trace whole = run(options);
    for (const Resume& resume :
         {Resume{{1, "none", 0}, {1, "none", 0}}, Resume{{1, "none", 0}, {3, "full", 0}},
          Resume{{3, "optimizer", 0}, {4, "hybrid", 2}}, Resume{{4, "full", 0}, {2, "none", 0}},
          Resume{{2, "hybrid", 1}, {3, "gradient", 0}}}) {
      const auto [from, to] = resume;
      CAPTURE(optimizer.name, from.ranks, from.strategy, to.ranks, to.strategy);
      const Trace before = run(with(options, from.ranks, from.strategy, from.group), 0, 2);
      Options other = with(options, to.ranks, to.strategy, to.group);
      other.init.seed = 99;  // What is not restored would show.
      const Trace after = run(other, 2, kSteps, &before.state);
      CHECK(after.state == whole.state);
      CHECK(after.digests == std::vector(whole.digests.begin() + 2, whole.digests.end()));
      const auto half = static_cast<std::ptrdiff_t>(whole.values.size() / 2);
      CHECK(after.values == std::vector(whole.values.begin() + half, whole.values.end()));
    }
  }
}

TEST_CASE("optimizer bits: the state of every optimizer is in its checkpoints, and moves",
          "[engine][optimizer]") {
  for (const RegisteredOptimizer& optimizer : registered_optimizers()) {
    const Options options = world_options(optimizer.name);
    const auto made = make_optimizer(options.optimizer, options.total_steps);
    const WholeState state = run(options, 0, 1).state;
    std::size_t expected = 0;
    for (const UnitParameters& unit : describe_units(options.model)) {
      for (const Parameter& parameter : unit.parameters) {
        ++expected;
        CHECK(state.count("model." + parameter.name) == 1);
        for (const std::string_view tensor : made->states(parameter)) {
          ++expected;
          const auto found = state.find(fmt::format("optimizer.{}.{}", tensor, parameter.name));
          CAPTURE(optimizer.name, parameter.name, std::string(tensor));
          REQUIRE(found != state.end());
          CHECK(found->second.size() ==
                static_cast<std::size_t>(parameter.count()) * sizeof(float));
          CHECK(std::any_of(found->second.begin(), found->second.end(),
                            [](std::byte byte) { return byte != std::byte{0}; }));
        }
      }
    }
    CHECK(state.size() == expected);
  }
}

TEST_CASE("optimizer diagnostics: are those of the whole model, whoever keeps what",
          "[engine][world_step][optimizer]") {
  Options options = world_options("adana");
  const auto stream = kernels::make_inline_stream(1);
  for (const Layout& layout : {Layout{1, "none", 0}, Layout{3, "full", 0}}) {
    WorldStep world(kernels::cpu_backend(),
                    with(options, layout.ranks, layout.strategy, layout.group));
    const auto text = testing::repeating_text(options);
    const Optimizer& optimizer = world.rank(0).optimizer();
    for (std::int64_t step = 0; step < 3; ++step) {
      const StepResult result = world.run(*stream, step, text);
      const auto diagnostics = diagnose(optimizer, result.optimizer_sums);
      double square = 0.0, ratios = 0.0, count = 0.0;
      const WholeState state = state_of(world);
      for (const auto& [name, bytes] : state) {
        if (name.rfind("optimizer.m.", 0) != 0) {
          continue;
        }
        const auto& second = state.at("optimizer.v." + name.substr(12));
        for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
          float m = 0.0F, v = 0.0F;
          std::memcpy(&m, bytes.data() + at, sizeof(m));
          std::memcpy(&v, second.data() + at, sizeof(v));
          square += static_cast<double>(m) * static_cast<double>(m);
          ratios += std::abs(static_cast<double>(m)) /
                    (std::sqrt(static_cast<double>(v)) + options.optimizer.eps);
          count += 1.0;
        }
      }
      const double growth = std::pow(static_cast<double>(step + 2), 1.0 - options.optimizer.kappa);
      CHECK(value_of(diagnostics, "m_norm") == Approx(std::sqrt(square)).epsilon(1e-12));
      CHECK(value_of(diagnostics, "auto_factor") == Approx(ratios / count).epsilon(1e-5));
      CHECK(value_of(diagnostics, "alpha") == Approx(growth * ratios / count).epsilon(1e-5));
      CHECK(value_of(diagnostics, "kappa_factor") == Approx(growth).epsilon(1e-5));
      CHECK(result.optimizer_sums[index_of(optimizer, "count")].value() == count);
    }
  }
}

TEST_CASE("optimizer diagnostics: frozen parameters do not count",
          "[engine][world_step][optimizer]") {
  Options options = world_options("dana-star-mk4");
  options.train.freeze = {"embedding", "transformer.h.1.mlp.*"};
  double trained = 0.0;
  for (const UnitParameters& unit : describe_units(options.model)) {
    for (const Parameter& parameter : unit.parameters) {
      const bool frozen =
          unit.name == "embedding" || matches_shell("transformer.h.1.mlp.*", parameter.name);
      trained += frozen ? 0.0 : static_cast<double>(parameter.count());
    }
  }
  const auto stream = kernels::make_inline_stream(1);
  for (const Layout& layout : kLayouts) {
    WorldStep world(kernels::cpu_backend(),
                    with(options, layout.ranks, layout.strategy, layout.group));
    const StepResult result = world.run(*stream, 0, testing::repeating_text(options));
    const Optimizer& optimizer = world.rank(0).optimizer();
    CAPTURE(layout.ranks, layout.strategy, layout.group);
    CHECK(result.optimizer_sums[index_of(optimizer, "count")].value() == trained);
  }
}

TEST_CASE("optimizer diagnostics: are made every so many steps and at the last, never of poison",
          "[engine][world_step][optimizer]") {
  Options options = world_options("adana");
  options.total_steps = 5;
  options.diagnostics_interval = 2;
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), with(options, 2, "full"));
  const auto text = testing::repeating_text(options);
  for (std::int64_t step = 0; step < 5; ++step) {
    const bool due = step == 1 || step == 3 || step == 4;
    CHECK(world.run(*stream, step, text).optimizer_sums.empty() != due);
  }
  testing::state_of(world.rank(0), "model.transformer.wte.weight")[5] = INFINITY;
  const StepResult result = world.run(*stream, 3, text);
  CHECK(result.nonfinite);
  CHECK(result.optimizer_sums.empty());

  WorldStep adamw(kernels::cpu_backend(), world_options("adamw"));
  CHECK(adamw.run(*stream, 0, text).optimizer_sums.empty());
}

}  // namespace train::engine::optimizer_bits_test
