#include "engine/rank/exec/rank_gradients.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/rank/small_model.hpp"

namespace train::engine::rank_gradients_test {
namespace {

using Options = WorldStep::Options;

Options options_of(std::int64_t ranks, const std::string& strategy) {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 4;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = strategy == "hybrid" ? 2 : 0;
  return options;
}

/// The reduced gradients of all ranks, whole, by parameter.
std::map<std::string, std::vector<float>> whole_gradients(WorldStep& world) {
  std::map<std::string, std::vector<float>> whole;
  for (const testing::GradientShard& shard : testing::gradients_of(world.rank(0))) {
    whole[shard.name] = {};
  }
  for (std::int64_t rank = 0; rank < world.rank(0).plan().ranks(); ++rank) {
    for (const testing::GradientShard& shard : testing::gradients_of(world.rank(rank))) {
      auto& values = whole.at(shard.name);
      const auto end = static_cast<std::size_t>((shard.first_row + shard.rows) * shard.cols);
      values.resize(std::max(values.size(), end));
      if (shard.rows > 0) {
        std::memcpy(values.data() + shard.first_row * shard.cols, shard.data,
                    testing::values_of(shard).size_bytes());
      }
    }
  }
  return whole;
}

struct Outcome {
  std::map<std::string, std::vector<float>> gradients;
  StepResult result;
  std::uint64_t digest = 0;
};

Outcome run(const Options& options) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  Outcome outcome;
  outcome.result = world.run(*stream, 0, testing::repeating_text(options));
  outcome.gradients = whole_gradients(world);
  outcome.digest = world.digest();
  return outcome;
}

}  // namespace

TEST_CASE("rank gradients: all ranks together have the gradient of one alone, at every strategy",
          "[engine][rank_gradients][EN-1]") {
  const Outcome alone = run(options_of(1, "none"));
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
      if (ranks == 3 && strategy[0] == 'h') {
        continue;
      }
      CAPTURE(ranks, strategy);
      const Outcome world = run(options_of(ranks, strategy));
      CHECK(world.result.grad_norm == alone.result.grad_norm);
      CHECK(world.digest == alone.digest);
      CHECK(world.gradients == alone.gradients);
    }
  }
}

TEST_CASE("rank gradients: frozen parameters do not change and have no part in the norm",
          "[engine][rank_gradients]") {
  const auto* const strategy = GENERATE("none", "optimizer", "full");
  const std::int64_t ranks = GENERATE(1, 3);
  auto options = options_of(ranks, strategy);
  options.optimizer.weight_decay = 0.3;
  options.train.freeze = {"block 0", "lm_head.*"};
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto weights = [&] {
    std::map<std::string, std::map<std::int64_t, std::vector<std::byte>>> rows;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (const StateView& view : world.rank(rank).state().shard_views()) {
        rows[view.name][view.first_row].assign(view.data, view.data + view.size_bytes);
      }
    }
    return rows;
  };
  const auto before = weights();
  const StepResult result = world.run(*stream, 0, testing::repeating_text(options));
  for (const auto& [name, rows] : weights()) {
    CAPTURE(name);
    const bool frozen =
        name.find(".h.0.") != std::string::npos || name.find("lm_head") != std::string::npos;
    CHECK((rows == before.at(name)) == frozen);
  }
  CHECK(result.unit_grad_norms.at(1) == 0.0);
  CHECK(result.unit_grad_norms.at(0) > 0.0);
  CHECK(result.grad_norm < run(options_of(1, "none")).result.grad_norm);
}

TEST_CASE("rank gradients: a pattern that freezes nothing is an error, never a silent zero",
          "[engine][rank_gradients]") {
  auto options = options_of(1, "none");
  options.train.freeze = {"head", "transformer.h.7.*"};
  const Status refused = check_freeze(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("train.freeze") != std::string::npos);
  CHECK(refused.error().message.find("transformer.h.7.*") != std::string::npos);
  options.train.freeze.pop_back();
  CHECK(check_freeze(options).ok());
}

}  // namespace train::engine::rank_gradients_test
