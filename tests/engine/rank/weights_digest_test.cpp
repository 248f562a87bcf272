#include "engine/rank/state/state_rows.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/rank/small_model.hpp"

namespace train::engine::weights_digest_test {
namespace {

using Digests = std::vector<std::uint64_t>;

/// Two tensors of one parameter, rows of three floats.
struct Table {
  std::vector<float> weights = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> moments = {1, 2, 3, 4, 5, 6, 7, 8, 9};

  [[nodiscard]] static StateView rows(std::string name, std::vector<float>& all, std::int64_t first,
                                      std::int64_t count) {
    return {.name = std::move(name),
            .global_shape = {3, 3},
            .first_row = first,
            .rows = count,
            .data = reinterpret_cast<std::byte*>(all.data() + 3 * first),
            .size_bytes = static_cast<std::size_t>(count) * 3 * sizeof(float)};
  }
  std::vector<StateView> views(std::int64_t first, std::int64_t count) {
    return {rows("optimizer.exp_avg.w", moments, first, count),
            rows("model.w", weights, first, count)};
  }
};

const std::vector<std::string> kNames = {"model.w", "optimizer.exp_avg.w"};

Digests added(Digests a, const Digests& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] += b[i];
  }
  return a;
}

TEST_CASE("tensor digests: the sum over any split of the rows is the same", "[engine][P1]") {
  Table table;
  const auto whole = table.views(0, 3);
  CHECK(tensor_names(whole) == kNames);
  const Digests all = tensor_digests(whole, kNames);
  REQUIRE(all.size() == 2);
  for (const std::int64_t cut : {0, 1, 2, 3}) {
    const Digests parts = added(tensor_digests(table.views(0, cut), kNames),
                                tensor_digests(table.views(cut, 3 - cut), kNames));
    CHECK(parts == all);
  }
  CHECK(weights_digest(all, kNames) == weights_digest(whole));
  CHECK(all[0] == weights_digest(whole));
}

TEST_CASE("tensor digests: each sees its own bytes, rows and name alone", "[engine]") {
  Table table;
  const Digests before = tensor_digests(table.views(0, 3), kNames);
  CHECK(before[0] != before[1]);  // the same bytes under another name
  table.moments[4] += 1;
  const Digests after = tensor_digests(table.views(0, 3), kNames);
  CHECK(after[0] == before[0]);
  CHECK(after[1] != before[1]);
  std::swap_ranges(table.weights.begin(), table.weights.begin() + 3, table.weights.begin() + 3);
  CHECK(tensor_digests(table.views(0, 3), kNames)[0] != before[0]);
}

TEST_CASE("tensor digests: shards of all ranks add up to those of one", "[engine][P1]") {
  const auto strategy =
      GENERATE(std::string("none"), std::string("full"), std::string("optimizer"));
  Digests one;
  std::vector<std::string> names;
  for (const std::int64_t ranks : {1, 2, 3}) {
    Digests sum;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      RankOptions options = testing::small_options(Architecture::enoki);
      options.batch.lanes = 5;
      options.parallel.ranks = ranks;
      options.parallel.strategy = ranks == 1 ? "none" : strategy;
      options.rank = rank;
      const RankEngine engine(kernels::cpu_backend(), options);
      const auto own_names = tensor_names(engine.state().views());
      CHECK((names.empty() || own_names == names));
      names = own_names;
      sum.resize(names.size());
      sum = added(sum, tensor_digests(engine.state().shard_views(), names));
    }
    CHECK((one.empty() || sum == one));
    one = sum;
  }
}

}  // namespace
}  // namespace train::engine::weights_digest_test
