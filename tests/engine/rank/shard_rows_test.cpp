#include "engine/rank/state/state_rows.hpp"

#include <catch2/catch.hpp>

#include "engine/optimizer/registry.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::shard_rows_test {

TEST_CASE("shard rows: they are what a rank's engine has, by name, row and size",
          "[engine][shard_rows]") {
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full", "hybrid");
  const char* const optimizer = GENERATE("adamw", "muon", "dana-star");
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 5;
  options.parallel.ranks = 4;
  options.parallel.strategy = strategy;
  options.parallel.group = std::string(strategy) == "hybrid" ? 2 : 0;
  options.optimizer.name = optimizer;
  CAPTURE(strategy, optimizer);
  const auto plan = plan_of(options);
  REQUIRE(plan.ok());
  const auto rule = make_optimizer(options.optimizer, options.total_steps);
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    const RankEngine rank(kernels::cpu_backend(), options);
    const auto views = rank.state().shard_views();
    const auto rows = shard_rows(*plan, *rule, options.rank);
    REQUIRE(rows.size() == views.size());
    std::uint64_t size_bytes = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i].name == views[i].name);
      CHECK(rows[i].global_shape == views[i].global_shape);
      CHECK(rows[i].first_row == views[i].first_row);
      CHECK(rows[i].rows == views[i].rows);
      CHECK(rows[i].size_bytes == views[i].size_bytes);
      CHECK(rows[i].data == nullptr);
      CHECK(views[i].data != nullptr);
      size_bytes += views[i].size_bytes;
    }
    CHECK(shard_bytes(*plan, *rule, options.rank) == size_bytes);
  }
}

}  // namespace train::engine::shard_rows_test
