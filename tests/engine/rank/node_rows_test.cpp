
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "engine/optimizer/registry.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::node_rows_test {
namespace {

RankOptions four_ranks(const std::string& strategy, const std::string& optimizer) {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 5;
  options.parallel.ranks = 4;
  options.parallel.strategy = strategy;
  options.parallel.group = strategy == "hybrid" ? 2 : 0;
  options.optimizer.name = optimizer;
  return options;
}

/// Each row by tensor, and how often it is there.
using Rows = std::map<std::pair<std::string, std::int64_t>, int>;

void count(const std::vector<StateView>& views, Rows& rows) {
  for (const StateView& view : views) {
    for (std::int64_t row = 0; row < view.rows; ++row) {
      ++rows[{view.name, view.first_row + row}];
    }
  }
}

}  // namespace

TEST_CASE("node rows: with all ranks on one node they are the shards", "[engine][node_rows]") {
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full", "hybrid");
  const char* const optimizer = GENERATE("adamw", "muon");
  CAPTURE(strategy, optimizer);
  const auto options = four_ranks(strategy, optimizer);
  const auto plan = plan_of(options);
  REQUIRE(plan.ok());
  const auto rule = make_optimizer(options.optimizer, options.total_steps);
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    const auto rows = node_rows(*plan, *rule, rank, {0, 4});
    const auto shard = shard_rows(*plan, *rule, rank);
    REQUIRE(rows.size() == shard.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(rows[i].name == shard[i].name);
      CHECK(rows[i].first_row == shard[i].first_row);
      CHECK(rows[i].rows == shard[i].rows);
    }
    CHECK(node_bytes(*plan, *rule, rank, {0, 4}) == shard_bytes(*plan, *rule, rank));
  }
}

TEST_CASE("node rows: a node's ranks share out all that each of them keeps, every row once",
          "[engine][node_rows]") {
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full", "hybrid");
  const char* const optimizer = GENERATE("adamw", "muon");
  const auto node = GENERATE(RankSpan{0, 2}, RankSpan{2, 4}, RankSpan{0, 1}, RankSpan{1, 4});
  CAPTURE(strategy, optimizer, node.first, node.end);
  auto options = four_ranks(strategy, optimizer);
  const auto plan = plan_of(options);
  REQUIRE(plan.ok());
  // Weights are whole on every rank, and their masters on all nodes together.
  const std::set<std::string> incomplete = {"optimizer", "gradient"};
  Rows shared;
  Rows kept;
  for (options.rank = node.first; options.rank < node.end; ++options.rank) {
    const RankEngine rank(kernels::cpu_backend(), options);
    const auto views = node_views(rank.rank_plan(), rank.state(), node);
    std::uint64_t size_bytes = 0;
    for (const StateView& view : views) {
      CHECK(view.data != nullptr);
      size_bytes += view.size_bytes;
    }
    CHECK(size_bytes == node_bytes(*plan, rank.optimizer(), options.rank, node));
    count(views, shared);
    count(rank.state().views(), kept);
  }
  for (const auto& [row, times] : shared) {
    INFO(row.first << " row " << row.second);
    CHECK(times == 1);
    CHECK(kept.contains(row));
  }
  if (!incomplete.contains(strategy)) {
    CHECK(shared.size() == kept.size());
  }
}

TEST_CASE("node rows: what a rank keeps follows from the plan", "[engine][node_rows]") {
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full", "hybrid");
  const char* const optimizer = GENERATE("adamw", "muon");
  CAPTURE(strategy, optimizer);
  auto options = four_ranks(strategy, optimizer);
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    const RankEngine rank(kernels::cpu_backend(), options);
    Rows rows;
    Rows wanted;
    count(kept_rows(rank.plan(), rank.optimizer(), options.rank), rows);
    count(rank.state().views(), wanted);
    CHECK(rows == wanted);
  }
}

}  // namespace train::engine::node_rows_test
