#include "engine/rank/exec/totals/step_totals.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/engine/rank/small_model.hpp"

namespace train::engine::gradient_norm_test {
namespace {

RankOptions options_of(std::int64_t ranks, const char* strategy, std::int64_t group) {
  auto options = testing::small_options(Architecture::enoki);
  options.batch.lanes = 7;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.group = group;
  return options;
}

/// A gradient of very uneven size, by parameter; the same whoever asks.
std::vector<float> gradient_of(const Parameter& parameter) {
  std::mt19937 generator(static_cast<unsigned>(parameter.name.size() * 31 + 7));
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(parameter.count()));
  for (float& value : values) {
    value = normal(generator) * std::exp(2.0F * normal(generator));
  }
  return values;
}

/// Every rank's nodes, put together as the exchange does, then the trees finished.
std::vector<double> squares(const RankOptions& options) {
  const auto stream = kernels::make_inline_stream(1);
  const ShardPlan plan = plan_of(options).value();
  const RankLayout first(plan, options);
  std::vector<double> values(static_cast<std::size_t>(first.step_block(plan.ranks())));
  std::vector<double> result;
  for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
    auto of_rank = options;
    of_rank.rank = rank;
    const RankLayout layout(plan, of_rank);
    const NormTree tree(plan, layout);
    std::vector<double> row_sums(static_cast<std::size_t>(layout.norm_rows()) + 1);
    for (std::size_t index = 0; index < plan.groups().size(); ++index) {
      const ShardGroup& group = plan.groups()[index];
      const Part& part = layout.group(index).reduce;
      std::vector<float> packed(static_cast<std::size_t>(part.element_count) + 1);
      for (const Segment& segment : part.segments) {
        const Parameter& parameter = group.parameters[segment.parameter];
        const std::vector<float> whole = gradient_of(parameter);
        std::memcpy(packed.data() + segment.packed_offset,
                    whole.data() + segment.first_row * parameter.cols(),
                    static_cast<std::size_t>(segment.count) * sizeof(float));
      }
      sum_squares(kernels::cpu_backend(), *stream, group, part, packed.data(), row_sums.data(),
                  values.data() + layout.step_block(rank) + tree.first_node(index));
    }
    if (rank + 1 == plan.ranks()) {
      const double all = tree.finish(values.data(), result);
      result.push_back(all);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("gradient norm: who holds which rows does not show", "[engine][gradient_norm][EN-1]") {
  const auto alone = squares(options_of(1, "none", 0));
  double plain = 0.0;
  for (const UnitParameters& unit : describe_units(testing::small_shape(Architecture::enoki))) {
    for (const Parameter& parameter : unit.parameters) {
      for (const float value : gradient_of(parameter)) {
        plain += static_cast<double>(value) * static_cast<double>(value);
      }
    }
  }
  CHECK(alone.back() == Approx(plain).epsilon(1e-12));
  for (std::int64_t ranks = 2; ranks <= 7; ++ranks) {
    CAPTURE(ranks);
    CHECK(squares(options_of(ranks, "none", 0)) == alone);
    CHECK(squares(options_of(ranks, "full", 0)) == alone);
    if (ranks % 2 == 0) {
      CHECK(squares(options_of(ranks, "hybrid", 2)) == alone);
    }
  }
}

}  // namespace train::engine::gradient_norm_test
