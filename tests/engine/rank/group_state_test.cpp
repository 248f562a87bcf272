#include "engine/rank/state/group_state.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/rank/state/state_rows.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/blocks/moving_average.hpp"

namespace train::engine::group_state_test {
namespace {

const std::string kMatrix = "transformer.h.0.mlp.c_proj.weight";

struct Strategies {
  const char* strategy;
  std::int64_t group;
};

RankOptions options_of(Strategies of, std::int64_t ranks, const char* compute) {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 5;
  options.parallel.ranks = ranks;
  options.parallel.strategy = of.strategy;
  options.parallel.group = of.group;
  options.precision.compute = compute;
  return options;
}

}  // namespace

TEST_CASE("group state: views name every tensor and borrow its memory", "[engine][group_state]") {
  const RankEngine rank(kernels::cpu_backend(), testing::small_options(Architecture::enoki));
  const std::vector<StateView> views = rank.state().views();
  std::set<std::string> names;
  for (const StateView& view : views) {
    names.insert(view.name);
    std::size_t count = 1;
    for (const std::int64_t dimension : view.global_shape) {
      count *= static_cast<std::size_t>(dimension);
    }
    CHECK(view.size_bytes == count * sizeof(float));
    CHECK(view.first_row == 0);
    CHECK(view.rows == view.global_shape.front());
  }
  CHECK(names.size() == views.size());
  CHECK(names.count("optimizer.exp_avg_sq." + kMatrix) == 1);
  const std::uint64_t before = rank.state().digest();
  testing::state_of(rank, "model." + kMatrix)[7] += 1.0F;
  CHECK(rank.state().digest() != before);
}

TEST_CASE("group state: the digest sees every value, its row and its parameter",
          "[engine][group_state]") {
  const RankEngine rank(kernels::cpu_backend(), testing::small_options(Architecture::enoki));
  const std::uint64_t base = rank.state().digest();
  CHECK(rank.state().digest() == base);
  const auto weights = testing::state_of(rank, "model." + kMatrix);
  float* row = weights.data();
  constexpr std::size_t kCols = 40;

  row[3] += 1e-3F;
  CHECK(rank.state().digest() != base);
  row[3] -= 1e-3F;
  std::swap_ranges(row, row + kCols, row + kCols);
  CHECK(rank.state().digest() != base);
  std::swap_ranges(row, row + kCols, row + kCols);
  CHECK(rank.state().digest() == base);

  std::vector<StateView> renamed = rank.state().shard_views();
  CHECK(weights_digest(renamed) == base);
  renamed.front().name += "x";
  CHECK(weights_digest(renamed) != base);
}

TEST_CASE("group state: shards of all ranks hold every row once", "[engine][group_state]") {
  const auto of =
      GENERATE(Strategies{"none", 0}, Strategies{"optimizer", 0}, Strategies{"gradient", 0},
               Strategies{"full", 0}, Strategies{"hybrid", 2}, Strategies{"hybrid", 1},
               Strategies{"hybrid", 4});
  const std::int64_t ranks = of.group > 0 ? 4 : GENERATE(1, 3, 5);
  CAPTURE(of.strategy, of.group, ranks);
  std::map<std::string, std::vector<int>> seen;
  std::uint64_t digest = 0;
  for (std::int64_t r = 0; r < ranks; ++r) {
    auto options = options_of(of, ranks, "fp32");
    options.rank = r;
    const RankEngine rank(kernels::cpu_backend(), options);
    digest += rank.state().digest();
    for (const StateView& view : rank.state().shard_views()) {
      auto& rows = seen[view.name];
      rows.resize(static_cast<std::size_t>(view.global_shape.front()));
      for (std::int64_t row = view.first_row; row < view.first_row + view.rows; ++row) {
        ++rows[static_cast<std::size_t>(row)];
      }
    }
  }
  const RankEngine alone(kernels::cpu_backend(), options_of({"none", 0}, 1, "fp32"));
  CHECK(digest == alone.state().digest());
  CHECK(seen.size() == alone.state().views().size());
  for (const auto& [name, rows] : seen) {
    CAPTURE(name);
    CHECK(std::all_of(rows.begin(), rows.end(), [](int count) { return count == 1; }));
  }
}

TEST_CASE("group state: what a checkpoint holds restores every rank of any plan",
          "[engine][group_state]") {
  const auto of =
      GENERATE(Strategies{"none", 0}, Strategies{"optimizer", 0}, Strategies{"gradient", 0},
               Strategies{"full", 0}, Strategies{"hybrid", 2});
  const auto* const compute = GENERATE("fp32", "bf16");
  CAPTURE(of.strategy, compute);
  constexpr std::int64_t kRanks = 4;
  auto options = options_of(of, kRanks, compute);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep source(kernels::cpu_backend(), options);
  source.run(*stream, 0, testing::repeating_text(options));
  std::map<std::string, std::vector<std::byte>> stored;
  for (std::int64_t r = 0; r < kRanks; ++r) {
    for (const StateView& view : source.rank(r).state().shard_views()) {
      const std::size_t row_bytes = view.size_bytes / static_cast<std::size_t>(view.rows);
      auto& bytes = stored[view.name];
      bytes.resize(row_bytes * static_cast<std::size_t>(view.global_shape.front()));
      std::memcpy(bytes.data() + row_bytes * static_cast<std::size_t>(view.first_row), view.data,
                  view.size_bytes);
    }
  }
  options.init.seed += 1;
  WorldStep restored(kernels::cpu_backend(), options);
  REQUIRE(restored.digest() != source.digest());
  for (std::int64_t r = 0; r < kRanks; ++r) {
    for (const StateView& view : restored.rank(r).state().views()) {
      const std::size_t row_bytes = view.size_bytes / static_cast<std::size_t>(view.rows);
      std::memcpy(
          view.data,
          stored.at(view.name).data() + row_bytes * static_cast<std::size_t>(view.first_row),
          view.size_bytes);
    }
    restored.rank(r).state().finalize_restored();
  }
  CHECK(restored.digest() == source.digest());
  const auto text = testing::repeating_text(options);
  CHECK(restored.run(*stream, 1, text).loss == source.run(*stream, 1, text).loss);
  CHECK(restored.digest() == source.digest());
}

TEST_CASE("group state: bf16 weights are the masters rounded", "[engine][group_state]") {
  const RankEngine rank(kernels::cpu_backend(), options_of({"none", 0}, 1, "bf16"));
  const auto masters = testing::state_of(rank, "model.transformer.wte.weight");
  const float* weights = rank.state().group(0).whole_floats();
  bool rounded = false;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &weights[i], sizeof(bits));
    REQUIRE((bits & 0xFFFFU) == 0U);
    REQUIRE(weights[i] == Approx(masters[i]).epsilon(1.0 / 256.0));
    rounded = rounded || weights[i] != masters[i];
  }
  CHECK(rounded);
}

TEST_CASE("group state: what is exact lies in fp32 among the bf16 weights of a device",
          "[engine][group_state][parameter]") {
  const auto of =
      GENERATE(Strategies{"none", 0}, Strategies{"optimizer", 0}, Strategies{"full", 0});
  const bool frozen = GENERATE(false, true);
  const bool made = GENERATE(false, true);
  CAPTURE(of.strategy, frozen, made);
  auto options = options_of(of, of.strategy == std::string("none") ? 1 : 2, "bf16");
  testing::MovingAverageSpec average;
  average.init = Initializer::uniform(0.5, 1.5);
  average.shape = {4, 2, 2};
  average.exact = true;
  options.model.layers[0].branches[0].block =
      std::make_shared<const testing::MovingAverageSpec>(average);
  options.model.frozen = frozen ? std::vector<std::string>{"*.mix.weight"} : options.model.frozen;
  options.knows_bf16 = true;
  options.memory.bf16_weights = made ? "made" : "kept";
  const auto plan = plan_of(options);
  REQUIRE(plan);
  const RankLayout layout(*plan, options);
  REQUIRE(layout.compute_weights() == ComputeWeights::bf16);
  const std::size_t index = plan->group_of(1);
  const ShardGroup& group = plan->groups()[index];
  GroupState state(kernels::cpu_backend(), group, layout.group(index), layout.optimizer(),
                   layout.compute_weights(), Offload::nothing);
  state.initialise(options.model, options.init);
  const auto stream = kernels::make_inline_stream(1);
  state.finalize(*stream, {}, /*is_rounded=*/false);
  const GroupLayout& rows = layout.group(index);
  std::vector<std::uint16_t> weights(static_cast<std::size_t>(rows.flat));
  if (rows.made) {
    state.make_weights(*stream, weights.data());
  } else if (rows.resident) {
    std::memcpy(weights.data(), state.whole().data, weights.size() * sizeof(std::uint16_t));
  }
  std::size_t exact = 0;
  for (const Segment& segment : rows.rows.segments) {
    const Parameter& parameter = group.parameters[segment.parameter];
    CAPTURE(parameter.name);
    std::vector<float> wanted(static_cast<std::size_t>(segment.count));
    fill_initial_rows(parameter, options.model, options.init, segment.first_row, segment.rows,
                      wanted);
    const std::uint16_t* found =
        rows.resident
            ? weights.data() + parameter.offset
            : reinterpret_cast<const std::uint16_t*>(state.shard()) + segment.packed_offset;
    const auto* values = reinterpret_cast<const float*>(found);
    const std::int64_t first = rows.resident ? segment.first_row * parameter.cols() : 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(first) + i;
      const auto bits = std::bit_cast<std::uint32_t>(wanted[i]);
      if (parameter.exact) {
        REQUIRE(values[at] == wanted[i]);
        exact += (bits & 0xFFFFU) != 0 ? 1 : 0;
      } else {
        const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
        REQUIRE(found[at] == rounded);
      }
    }
    if (parameter.exact) {
      const Elements kept = state.weight(segment.parameter, segment.first_row);
      CHECK(kept.dtype == kernels::DType::f32);
      CHECK(*reinterpret_cast<const float*>(kept.data) == wanted.front());
    }
  }
  CHECK(exact > 0);
}

}  // namespace train::engine::group_state_test
