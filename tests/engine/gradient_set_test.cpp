#include "engine/rank/gradient_set.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/small_model.hpp"

namespace train::engine {
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
  for (const GradientShard& shard : world.rank(0).gradients().set().shards()) {
    whole[shard.name] = {};
  }
  for (std::int64_t rank = 0; rank < world.rank(0).plan().ranks(); ++rank) {
    for (const GradientShard& shard : world.rank(rank).gradients().set().shards()) {
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

Outcome run(const Options& options, const WorldStep::ChangeGradients& change = {}) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  Outcome outcome;
  outcome.result = world.run(*stream, 0, testing::repeating_text(options), change);
  outcome.gradients = whole_gradients(world);
  outcome.digest = world.digest();
  return outcome;
}

/// What a two-part objective may do: keep a gradient, change it, mix the two, mask.
void program(kernels::Stream& stream, GradientSet& gradients) {
  const auto saved = gradients.save(stream, "*");
  REQUIRE(saved.ok());
  REQUIRE(gradients.scale(stream, "block *", 0.5F).ok());
  REQUIRE(gradients.freeze(stream, "embedding").ok());
  REQUIRE(gradients.scale(stream, "*.attn.*", -1.0F).ok());
  gradients.keep_same_sign(stream, *saved);
  gradients.add_saved(stream, *saved, 0.25F);
}

}  // namespace

TEST_CASE("gradient set: programs act on all rows alike, at every strategy",
          "[engine][gradient_set][EN-1]") {
  const Outcome alone = run(options_of(1, "none"), program);
  const Outcome plain = run(options_of(1, "none"));
  REQUIRE(alone.result.grad_norm != plain.result.grad_norm);
  for (const auto& [name, before] : plain.gradients) {
    const bool embedding = name == "transformer.wte.weight";
    const bool block = name.find(".h.") != std::string::npos;
    const bool attention = name.find(".attn.") != std::string::npos;
    const float factor = embedding || attention ? 0.25F : block ? 0.75F : 1.25F;
    const std::vector<float>& after = alone.gradients.at(name);
    REQUIRE(after.size() == before.size());
    for (std::size_t i = 0; i < after.size(); ++i) {
      REQUIRE(after[i] == Approx(factor * before[i]).epsilon(1e-6).margin(1e-30));
    }
  }
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
      if (ranks == 3 && strategy[0] == 'h') {
        continue;
      }
      CAPTURE(ranks, strategy);
      const Outcome world = run(options_of(ranks, strategy), program);
      CHECK(world.result.grad_norm == alone.result.grad_norm);
      CHECK(world.digest == alone.digest);
      CHECK(world.gradients == alone.gradients);
    }
  }
}

TEST_CASE("gradient set: frozen parameters do not change and have no part in the norm",
          "[engine][gradient_set]") {
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

TEST_CASE("gradient set: a selector that matches nothing is an error, never a silent zero",
          "[engine][gradient_set]") {
  const auto stream = kernels::make_inline_stream(1);
  // Rank 2 has no row of some parameters: they are still there to be selected.
  auto options = options_of(4, "full");
  options.rank = 2;
  RankEngine rank(kernels::cpu_backend(), options);
  GradientSet& gradients = rank.gradients().set();
  const RankEngine alone(kernels::cpu_backend(), options_of(1, "none"));
  CHECK(gradients.shards().size() == alone.gradients().set().shards().size());
  for (const Status& status :
       {gradients.freeze(*stream, "blok 0"), gradients.scale(*stream, "transformer.h.9.*", 2.0F)}) {
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().message.find("matches no parameter") != std::string::npos);
  }
  CHECK_FALSE(gradients.save(*stream, "").ok());
  CHECK(gradients.select("block 1").value().size() == 8);

  CHECK(check_freeze(options).ok());
  options.train.freeze = {"head", "transformer.h.7.*"};
  const Status refused = check_freeze(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("train.freeze") != std::string::npos);
  CHECK(refused.error().message.find("transformer.h.7.*") != std::string::npos);
}

}  // namespace train::engine
