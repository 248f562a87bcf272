#include "tests/support/objectives/two_losses.hpp"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/lanes/open_lanes.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/inputs/packed_rows.hpp"

namespace train::actors::two_losses_test {
namespace {

using engine::StepResult;
using engine::WorldStep;

constexpr double kCoefficient = 0.7;

/// An objective of so many passes over the same rows, whose losses weigh the same in all.
template <int kPasses>
class Repeated final : public engine::Objective {
 public:
  [[nodiscard]] engine::RowKind rows() const override { return engine::RowKind::documents; }
  [[nodiscard]] engine::LaneColumns columns() const override {
    return {.positions = true, .weights = true};
  }
  [[nodiscard]] std::vector<engine::Pass> passes(std::int64_t /*step*/) const override {
    return std::vector<engine::Pass>(kPasses, engine::Pass{.coefficient = 1.0 / kPasses});
  }
};

template <int kPasses>
std::unique_ptr<const engine::Objective> make_repeated(const configs::ObjectiveSection&) {
  return std::make_unique<Repeated<kPasses>>();
}

configs::RunConfig config_of(const test::TempDirectory& directory) {
  configs::RunConfig config;
  config.data.dir = (directory / "plain").string();
  config.data.forget_dir = (directory / "smoothed").string();
  config.data.sequence_length = 16;
  config.batch.lanes = 4;
  config.batch.micro_batch = 2;
  config.eval.interval_steps = 0;
  config.objective.name = "two_losses";
  config.objective.label_smoothing = 0.3;
  config.objective.beta = kCoefficient;
  return config;
}

/// A run of `config` as a plain loop over its data; `objective`: another one over the same rows.
class Trained {
 public:
  Trained(const configs::RunConfig& config, std::int64_t ranks,
          const std::string& strategy = "full", const std::string& objective = "") {
    auto data = data::open_lanes(config, 64);
    REQUIRE(data.ok());
    data_ = *data;
    auto options = engine::testing::small_options(engine::Architecture::dstar_qwen3);
    engine::ModelShape shape = engine::testing::small_shape(engine::Architecture::dstar_qwen3);
    shape.vocab_size = 64;
    shape.z_loss_coeff = 0.0F;
    options.model = shape;
    options.batch = config.batch;
    options.objective = config.objective;
    options.objective.name = objective.empty() ? config.objective.name : objective;
    options.seq_len = config.data.sequence_length;
    options.step_weight = data::LaneSource::step_weight(data_);
    options.parallel.ranks = ranks;
    options.parallel.strategy = strategy;
    world_ = std::make_unique<WorldStep>(kernels::cpu_backend(), options);
    for (const engine::PassPlan& pass : world_->rank(0).rank_plan().passes().step()) {
      streams_.emplace_back(
          [this, pass](std::int64_t step, std::int64_t lane, const engine::LaneSlot& slot) {
            REQUIRE(data_->read({.pass = pass, .step = step, .lane = lane}, slot).ok());
          });
    }
  }

  StepResult step(std::int64_t step) {
    const auto stream = kernels::make_inline_stream(1);
    return world_->run_passes(*stream, step, streams_);
  }
  [[nodiscard]] std::uint64_t digest() const { return world_->digest(); }

 private:
  std::shared_ptr<const data::LaneSource> data_;
  std::unique_ptr<WorldStep> world_;
  std::vector<WorldStep::FillLane> streams_;
};

void prepare(const test::TempDirectory& directory) {
  test::write_rows(directory / "plain", {.weights = false});
  test::write_rows(directory / "smoothed", {.documents = 30, .weights = true});
  engine::testing::add_two_losses();
}

struct Trace {
  std::vector<double> numbers;
  std::vector<std::uint64_t> digests;

  bool operator==(const Trace&) const = default;
};

Trace trace_of(const configs::RunConfig& config, std::int64_t ranks, const std::string& strategy) {
  Trained run(config, ranks, strategy);
  Trace trace;
  for (std::int64_t step = 0; step < 3; ++step) {
    const StepResult result = run.step(step);
    trace.numbers.insert(trace.numbers.end(), {result.loss, result.grad_norm});
    trace.numbers.insert(trace.numbers.end(), result.metrics.begin(), result.metrics.end());
    trace.digests.push_back(run.digest());
  }
  return trace;
}

}  // namespace

TEST_CASE("two losses: the same bits on any number of ranks", "[actors][two_losses][EN-1]") {
  const test::TempDirectory directory;
  prepare(directory);
  const auto config = config_of(directory);
  const Trace alone = trace_of(config, 1, "none");
  REQUIRE(alone.digests.front() != alone.digests.back());
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "gradient", "full"}) {
      CAPTURE(ranks, strategy);
      CHECK(trace_of(config, ranks, strategy) == alone);
    }
  }
}

TEST_CASE("two losses: each is what a run of one pass over its directory has",
          "[actors][two_losses]") {
  const test::TempDirectory directory;
  prepare(directory);
  const auto config = config_of(directory);
  const StepResult both = Trained(config, 1).step(0);
  auto plain = config;
  plain.objective.name = "sft";
  plain.objective.label_smoothing = 0.0;
  plain.data.forget_dir.clear();
  auto smoothed = plain;
  smoothed.objective.label_smoothing = 0.3;
  smoothed.data.dir = config.data.forget_dir;
  const double first = Trained(plain, 1).step(0).cross_entropy;
  const double second = Trained(smoothed, 1).step(0).cross_entropy;
  REQUIRE(both.metrics.size() == 3);
  CHECK(both.metrics[0] == first);
  CHECK(both.metrics[1] == second);
  CHECK(first != second);
  CHECK(both.loss == Approx(first + kCoefficient * second).epsilon(1e-6));
  CHECK((both.metrics[2] > 0.0 && both.metrics[2] < 1.0));
}

TEST_CASE("a step of three passes comes to what one over the same rows does",
          "[actors][two_losses]") {
  const test::TempDirectory directory;
  prepare(directory);
  auto config = config_of(directory);
  engine::add_objective("once", make_repeated<1>);
  engine::add_objective("thrice", make_repeated<3>);
  config.objective.name = "once";
  const StepResult expected = Trained(config, 1).step(0);
  for (const std::int64_t ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    const StepResult result = Trained(config, ranks, "full", "thrice").step(0);
    CHECK(result.loss == Approx(expected.loss).epsilon(1e-6));
    CHECK(result.grad_norm == Approx(expected.grad_norm).epsilon(1e-4));
  }
}

}  // namespace train::actors::two_losses_test
