#include "engine/sharding/shard_plan.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::shard_plan_test {
namespace {

using testing::all_strategies;
using testing::name_of;
using testing::plan_with;
using testing::shard_options;
using testing::whole_matrices;

std::string error_of(const std::function<void(ShardPlan::Options&)>& change, std::int64_t ranks = 4,
                     const char* strategy = "full") {
  ShardPlan::Options options = shard_options(ranks, strategy);
  change(options);
  const auto plan = ShardPlan::make(options);
  REQUIRE_FALSE(plan.ok());
  CHECK(plan.error().kind == ErrorKind::user);
  CHECK(plan.error().message.find('\n') == std::string::npos);
  return plan.error().message;
}

/// How often each element of the flat buffer is in a part; padding stays 0.
std::vector<int> coverage(const ShardPlan& plan, std::size_t group,
                          const std::vector<Part>& parts) {
  std::vector<int> times(static_cast<std::size_t>(plan.groups()[group].element_count), 0);
  for (const Part& part : parts) {
    for (const Segment& segment : part.segments) {
      for (std::int64_t i = 0; i < segment.count; ++i) {
        ++times.at(static_cast<std::size_t>(segment.flat_offset + i));
      }
    }
  }
  return times;
}

std::vector<int> once(const ShardPlan& plan, std::size_t group) {
  const ShardGroup& of = plan.groups()[group];
  std::vector<int> times(static_cast<std::size_t>(of.element_count), 0);
  for (const Parameter& parameter : of.parameters) {
    for (std::int64_t i = 0; i < parameter.count(); ++i) {
      ++times.at(static_cast<std::size_t>(parameter.offset + i));
    }
  }
  return times;
}

void check_part(const ShardPlan& plan, std::size_t group, const Part& part) {
  std::int64_t end = 0;
  for (const Segment& segment : part.segments) {
    const Parameter& parameter = plan.groups()[group].parameters[segment.parameter];
    CHECK(segment.rows > 0);
    CHECK(segment.count == segment.rows * parameter.cols());
    CHECK(segment.flat_offset == parameter.offset + segment.first_row * parameter.cols());
    CHECK(segment.packed_offset % 16 == 0);
    CHECK(segment.packed_offset >= end);
    end = segment.packed_offset + segment.count;
  }
  CHECK(part.element_count >= end);
  CHECK(part.element_count % 16 == 0);
}

std::int64_t rows_in(const Part& part, std::size_t parameter) {
  for (const Segment& segment : part.segments) {
    if (segment.parameter == parameter) {
      return segment.rows;
    }
  }
  return 0;
}

void check_even(const ShardPlan& plan, std::size_t group, const std::vector<Part>& parts) {
  const std::vector<Parameter>& parameters = plan.groups()[group].parameters;
  for (std::size_t parameter = 0; parameter < parameters.size(); ++parameter) {
    std::int64_t least = parameters[parameter].rows();
    std::int64_t most = 0;
    if (plan.groups()[group].owners[parameter] != kCutByRows) {
      continue;
    }
    for (const Part& part : parts) {
      least = std::min(least, rows_in(part, parameter));
      most = std::max(most, rows_in(part, parameter));
    }
    CHECK(most - least <= 1);
  }
}

void check_group(const ShardPlan& plan, std::size_t group) {
  std::vector<Part> reduce_parts;
  for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
    reduce_parts.push_back(plan.reduce_part(group, rank));
    check_part(plan, group, reduce_parts.back());
    check_part(plan, group, plan.state_part(group, rank));
    check_part(plan, group, plan.weight_part(group, rank));

    std::vector<Part> weights;
    for (const std::int64_t peer : plan.weight_peers(group, rank)) {
      weights.push_back(plan.weight_part(group, peer));
    }
    CHECK(coverage(plan, group, weights) == once(plan, group));
    check_even(plan, group, weights);

    // The replicas of a state part finish its gradient between them.
    std::vector<Part> finished;
    for (const std::int64_t peer : plan.replica_peers(group, rank)) {
      finished.push_back(plan.reduce_part(group, peer));
      CHECK(coverage(plan, group, {plan.state_part(group, peer)}) ==
            coverage(plan, group, {plan.state_part(group, rank)}));
    }
    CHECK(coverage(plan, group, finished) == coverage(plan, group, {plan.state_part(group, rank)}));
    // Whoever keeps a state part keeps those weights too.
    const auto state = coverage(plan, group, {plan.state_part(group, rank)});
    const auto kept = coverage(plan, group, {plan.weight_part(group, rank)});
    for (std::size_t i = 0; i < state.size(); ++i) {
      CHECK(state[i] <= kept[i]);
    }
  }
  CHECK(coverage(plan, group, reduce_parts) == once(plan, group));
}

}  // namespace

TEST_CASE("shard plan: every row has one owner, at any number of ranks and any strategy",
          "[engine][sharding]") {
  for (const ShardPlan::Options& options : all_strategies(9)) {
    INFO(name_of(options));
    const ShardPlan plan = plan_with(options);
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      check_group(plan, group);
    }
  }
}

TEST_CASE("shard plan: a whole parameter has one owner in every cut, and the same everywhere",
          "[engine][sharding][optimizer]") {
  for (ShardPlan::Options options : all_strategies(8)) {
    options.whole_parameters = whole_matrices(3);
    INFO(name_of(options));
    const ShardPlan plan = plan_with(options);
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      check_group(plan, group);
      const ShardGroup& of = plan.groups()[group];
      CHECK(of.owners == plan_with(options).groups()[group].owners);
      for (std::size_t i = 0; i < of.parameters.size(); ++i) {
        const bool whole = std::count(options.whole_parameters.begin(),
                                      options.whole_parameters.end(), of.parameters[i].name) > 0;
        REQUIRE((of.owners[i] != kCutByRows) == whole);
        for (std::int64_t rank = 0; whole && rank < plan.ranks(); ++rank) {
          const std::int64_t rows = of.parameters[i].rows();
          const auto kept = [&](std::int64_t parts) {
            return rank % parts == of.owners[i] % parts ? rows : 0;
          };
          CHECK(rows_in(plan.reduce_part(group, rank), i) == (rank == of.owners[i] ? rows : 0));
          CHECK(rows_in(plan.state_part(group, rank), i) == kept(of.state_parts));
          CHECK(rows_in(plan.weight_part(group, rank), i) == kept(of.weight_parts));
          CHECK(rows_in(plan.cut(group, 2, rank % 2), i) == kept(2));
        }
      }
    }
  }
}

TEST_CASE("shard plan: who keeps how much is the strategy's table", "[engine][sharding]") {
  struct Row {
    const char* strategy;
    std::int64_t group, weights, states;
    bool all_gathered, broadcast;
  };
  for (const Row& row : {Row{"none", 0, 1, 1, false, true}, Row{"optimizer", 0, 1, 6, true, false},
                         Row{"gradient", 0, 1, 6, true, false}, Row{"full", 0, 6, 6, false, false},
                         Row{"hybrid", 2, 2, 2, false, true}, Row{"hybrid", 6, 6, 6, false, false},
                         Row{"hybrid", 1, 1, 1, false, true}}) {
    INFO(row.strategy << " " << row.group);
    const ShardPlan plan = plan_with(shard_options(6, row.strategy, row.group));
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      CHECK(plan.groups()[group].weight_parts == row.weights);
      CHECK(plan.groups()[group].state_parts == row.states);
      CHECK(plan.all_gathered(group) == row.all_gathered);
      CHECK(plan.broadcast(group) == row.broadcast);
      CHECK(plan.resident(group) == (row.weights == 1));
    }
  }
}

TEST_CASE("shard plan: one part is laid out as the whole", "[engine][sharding]") {
  const ShardPlan plan = plan_with(shard_options(4, "none"));
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    const Part whole = plan.state_part(group, 3);
    CHECK(whole.element_count == plan.groups()[group].element_count);
    for (const Segment& segment : whole.segments) {
      CHECK(segment.packed_offset == segment.flat_offset);
    }
  }
}

TEST_CASE("shard plan: peers are neighbours, replicas stand apart", "[engine][sharding]") {
  ShardPlan::Options options = shard_options(8, "hybrid", 4);
  options.parallel.reshard = "2";
  const ShardPlan plan = plan_with(options);
  CHECK(plan.weight_peers(0, 6) == std::vector<std::int64_t>{4, 5, 6, 7});
  CHECK(plan.replica_peers(0, 6) == std::vector<std::int64_t>{2, 6});
  CHECK(plan.reshard_peers(0, 6) == std::vector<std::int64_t>{6, 7});
  CHECK(plan.splits_kept_weights(0));
  CHECK(plan.reshard_ranks() == 2);
}

TEST_CASE("shard plan: one rank keeps everything, whatever the strategy", "[engine][sharding]") {
  for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
    const ShardPlan plan = plan_with(shard_options(1, strategy, 1));
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      CHECK(plan.groups()[group].strategy == Strategy::none);
      CHECK(plan.own_gradient(group));
      CHECK_FALSE(plan.broadcast(group));
      CHECK_FALSE(plan.all_gathered(group));
    }
    CHECK(plan.train_lanes().syncs() == 1);
  }
}

TEST_CASE("shard plan: wrapping puts units into groups", "[engine][sharding]") {
  ShardPlan::Options options = shard_options(2, "full");
  CHECK(plan_with(options).groups().size() == 5);
  CHECK(plan_with(options).groups()[1].name == "block 0");

  options.parallel.wrapping = {"by_size"};
  options.parallel.wrap_min_parameters = 150;
  const ShardPlan by_size = plan_with(options);
  REQUIRE(by_size.groups().size() == 3);
  CHECK(by_size.groups()[0].units == std::vector<std::size_t>{0, 1});
  CHECK(by_size.groups()[1].name == "block 1 .. block 2");
  CHECK(by_size.groups()[2].name == "head");

  options.parallel.wrapping = {"block [01]"};
  const ShardPlan by_pattern = plan_with(options);
  REQUIRE(by_pattern.groups().size() == 3);
  CHECK(by_pattern.groups()[0].name == "embedding + block 2 .. head");
  CHECK(by_pattern.groups()[0].units == std::vector<std::size_t>{0, 3, 4});
  CHECK(by_pattern.groups()[2].units == std::vector<std::size_t>{2});
  for (const ShardPlan& plan : {by_size, by_pattern}) {
    for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
      const ShardGroup& group = plan.groups()[plan.group_of(unit)];
      const auto first =
          std::find_if(group.parameters.begin(), group.parameters.end(), [&](const Parameter& p) {
            return p.name == options.units[unit].parameters.front().name;
          });
      REQUIRE(first != group.parameters.end());
      CHECK(first->offset == plan.base_of(unit));
    }
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      check_group(plan, group);
    }
  }
}

TEST_CASE("shard plan: tied embeddings share a group, whatever the wrapping",
          "[engine][sharding]") {
  using Wrapping = std::vector<std::string>;
  for (const Wrapping& wrapping : {Wrapping{"per_block"}, Wrapping{"by_size"}, Wrapping{"head"},
                                   Wrapping{"embedding", "block 1"}, Wrapping{"block *"}}) {
    ShardPlan::Options options = shard_options(2, "full");
    options.tied = true;
    options.parallel.wrapping = wrapping;
    const ShardPlan plan = plan_with(options);
    INFO(wrapping.front());
    CHECK(plan.group_of(0) == plan.group_of(4));
    CHECK(plan.groups()[0].units == std::vector<std::size_t>{0, 4});
    CHECK(plan.groups()[0].name == "embedding + head");
  }
}

TEST_CASE("shard plan: parts of the model may have a strategy of their own", "[engine][sharding]") {
  ShardPlan::Options options = shard_options(4, "none");
  options.parallel.strategy_by_unit = {"block 1 = gradient", "block *=full", "head = optimizer"};
  const ShardPlan plan = plan_with(options);
  std::vector<Strategy> strategies;
  for (const ShardGroup& group : plan.groups()) {
    strategies.push_back(group.strategy);
  }
  CHECK(strategies == std::vector<Strategy>{Strategy::none, Strategy::full, Strategy::gradient,
                                            Strategy::full, Strategy::optimizer});
  CHECK(plan.train_lanes().syncs() == plan.train_lanes().rounds());

  // Groups by size end where the strategy changes.
  options.parallel.wrapping = {"by_size"};
  const ShardPlan by_size = plan_with(options);
  for (const ShardGroup& group : by_size.groups()) {
    CHECK(group.units.size() == 1);
  }
}

TEST_CASE("shard plan: gradients are sent when parallel.sync says so", "[engine][sharding]") {
  const auto syncs = [](const char* strategy, const char* sync) {
    ShardPlan::Options options = shard_options(2, strategy);
    options.parallel.sync = sync;
    return plan_with(options).train_lanes().syncs();
  };
  CHECK(syncs("none", "auto") == 1);
  CHECK(syncs("optimizer", "auto") == 1);
  CHECK(syncs("gradient", "auto") == 5);
  CHECK(syncs("full", "auto") == 5);
  CHECK(syncs("full", "last_lane") == 1);
  CHECK(syncs("none", "every_lane") == 5);
  CHECK(syncs("full", "2") == 3);
}

TEST_CASE("shard plan: lanes that are added up before they are sent need a gradient of their own",
          "[engine][sharding]") {
  for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
    ShardPlan::Options options = shard_options(2, strategy);
    const bool keeps = std::string(strategy) == "none" || std::string(strategy) == "optimizer";
    options.parallel.sync = "every_lane";
    const ShardPlan each = plan_with(options);
    CHECK(each.own_gradient(0) == keeps);
    CHECK(each.uses_shared_gradient(0) == !keeps);
    options.parallel.sync = "last_lane";
    const ShardPlan last = plan_with(options);
    CHECK(last.own_gradient(0));
    CHECK(last.uses_shared_gradient(0));
  }
}

TEST_CASE("shard plan: runs of lanes that begin inside a node of the radix are refused",
          "[engine][sharding]") {
  const auto fits = [](std::int64_t ranks, std::int64_t lanes, std::vector<std::int64_t> radix,
                       const char* sync) {
    ShardPlan::Options options = shard_options(ranks, "none", 0, lanes);
    options.parallel.sync = sync;
    options.radix = std::move(radix);
    return ShardPlan::make(options).ok();
  };
  // Radix 2 fits every layout: at most one lane of a node is left alone.
  for (std::int64_t ranks = 1; ranks <= 5; ++ranks) {
    for (std::int64_t lanes = ranks; lanes <= 20; ++lanes) {
      for (const char* sync : {"every_lane", "last_lane", "2", "3"}) {
        CAPTURE(ranks, lanes, sync);
        CHECK(fits(ranks, lanes, {2}, sync));
        CHECK((fits(ranks, lanes, {16, 2}, sync) || std::string(sync) != "every_lane"));
      }
    }
  }
  CHECK(fits(1, 12, {16}, "last_lane"));
  CHECK(fits(2, 32, {16}, "last_lane"));
  CHECK(fits(4, 64, {4, 16}, "last_lane"));
  CHECK_FALSE(fits(2, 16, {16}, "last_lane"));
  CHECK_FALSE(fits(2, 48, {16}, "last_lane"));
  CHECK_FALSE(fits(3, 12, {3}, "last_lane"));
  CHECK(fits(3, 12, {3}, "3"));
  ShardPlan::Options options = shard_options(2, "none", 0, 48);
  options.radix = {16, 4};
  const auto refused = ShardPlan::make(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK(refused.error().message ==
        "batch.radix begins with 16, but rank 1 of 2 begins a run of 24 lanes at lane 24: it would "
        "keep and send 8 of them one by one; let 16 divide the lanes of a rank (batch.lanes / "
        "parallel.ranks), set parallel.sync to \"every_lane\", or begin batch.radix with a smaller "
        "number");
  options.precision.determinism = "run";  // One running sum, in the order of arrival.
  CHECK(ShardPlan::make(options).ok());
}

TEST_CASE("shard plan: mistakes name the key and the fix", "[engine][sharding]") {
  using Options = ShardPlan::Options;
  const auto contains = [](const char* text) { return Catch::Contains(text); };
  CHECK(error_of([](Options& o) { o.train_lanes = 3; }) ==
        "parallel.ranks is 4 but batch.lanes is 3: a rank needs a lane; lower parallel.ranks or "
        "raise batch.lanes");
  CHECK_THAT(error_of([](Options& o) { o.parallel.strategy = "zero3"; }),
             contains("parallel.strategy is \"zero3\"") && contains("\"full\""));
  CHECK_THAT(error_of([](Options& o) { o.parallel.group = 3; }, 4, "hybrid"),
             contains("parallel.group is 3 but parallel.ranks is 4"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.wrapping = {"blok *"}; }),
             contains("parallel.wrapping: \"blok *\" matches no unit") &&
                 contains("\"embedding\", \"block 0\", \"block 1\" .. \"head\""));
  CHECK_THAT(error_of([](Options& o) {
               o.parallel.wrapping = {"per_block", "head"};
             }),
             contains("parallel.wrapping") && contains("alone"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.wrapping = {}; }), contains("is empty"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.strategy_by_unit = {"tail = full"}; }),
             contains("parallel.strategy_by_unit: \"tail\" matches no unit"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.strategy_by_unit = {"head full"}; }),
             contains("has no '='"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.strategy_by_unit = {"head = half"}; }),
             contains("strategy of \"head\" is \"half\""));
  CHECK_THAT(error_of([](Options& o) {
               o.parallel.strategy_by_unit = {"head = none"};
               o.tied = true;
             }),
             contains("\"embedding\" is full and \"head\" is none"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.reshard = "3"; }),
             contains("parallel.reshard is 3") && contains("split over 4 ranks"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.reshard = "8"; }), contains("parallel.reshard"));
  CHECK_THAT(error_of([](Options& o) { o.parallel.reshard = "later"; }),
             contains("parallel.reshard is \"later\""));
  CHECK_THAT(error_of([](Options& o) { o.parallel.sync = "0"; }, 1),
             contains("parallel.sync is \"0\""));
  CHECK_THAT(error_of([](Options& o) { o.parallel.gather_credits = 0; }),
             contains("parallel.gather_credits is 0") && contains("at least 1"));
  CHECK(error_of([](Options& o) { o.parallel.ranks = 0; }) ==
        "parallel.ranks is 0: give 1 or more");
  CHECK(error_of([](Options& o) { o.precision.determinism = "none"; }) ==
        "precision.determinism is \"none\": give \"world\" or \"run\"");
  CHECK_THAT(error_of([](Options& o) { o.precision.compute = "fp8"; }),
             contains("precision.compute is \"fp8\""));
}

TEST_CASE("shard plan: the digest changes with all that decides collectives, and with that alone",
          "[engine][sharding][EX-2]") {
  using Options = ShardPlan::Options;
  const Options base = shard_options(4, "full");
  const std::uint64_t digest = plan_with(base).digest();
  CHECK(plan_with(base).digest() == digest);
  const auto changed = [&](const std::function<void(Options&)>& change) {
    Options options = base;
    change(options);
    return plan_with(options).digest() != digest;
  };
  CHECK(changed([](Options& o) { o.parallel.ranks = 3; }));
  CHECK(changed([](Options& o) { o.parallel.strategy = "gradient"; }));
  CHECK(changed([](Options& o) { o.parallel.sync = "2"; }));
  CHECK(changed([](Options& o) { o.parallel.reshard = "2"; }));
  CHECK(changed([](Options& o) { o.parallel.reshard = "never"; }));
  CHECK(changed([](Options& o) { o.parallel.wrapping = {"block *"}; }));
  CHECK(changed([](Options& o) { o.parallel.strategy_by_unit = {"head = none"}; }));
  CHECK(changed([](Options& o) { o.precision.compute = "bf16"; }));
  CHECK(changed([](Options& o) { o.precision.reduce = "bf16"; }));
  CHECK(changed([](Options& o) { o.precision.determinism = "run"; }));
  CHECK(changed([](Options& o) { o.train_lanes = 10; }));
  CHECK(changed([](Options& o) { o.radix = {4, 2}; }));
  CHECK(changed([](Options& o) { o.eval_lanes = 5; }));
  CHECK(changed([](Options& o) { o.scored_lanes = 6; }));
  CHECK(changed([](Options& o) { o.units[1].parameters[0].shape[0] = 8; }));
  CHECK(changed([](Options& o) { o.whole_parameters = {"block.1.matrix"}; }));
  CHECK(changed([](Options& o) { o.parallel.gather_credits = 4; }));
  CHECK(changed([](Options& o) { o.parallel.prefetch_forward = 2; }));
  CHECK(changed([](Options& o) { o.parallel.prefetch_backward = 2; }));
  CHECK_FALSE(changed([](Options& o) { o.parallel.transport = "inproc"; }));
  CHECK_FALSE(changed([](Options& o) { o.parallel.port = 4000; }));
}

}  // namespace train::engine::shard_plan_test
