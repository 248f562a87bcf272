#include "engine/sharding/collective_schedule.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/rank/plan/pass_list.hpp"
#include "engine/sharding/buffer_schedule.hpp"
#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::collective_schedule_test {
namespace {

using testing::all_strategies;
using testing::name_of;
using testing::plan_with;
using testing::shard_options;

constexpr PassPlan kPasses[] = {kTrainStep, kEvaluation, kScoring, kReference, kNonfiniteSearch};

std::vector<CollectiveOp> of_kind(const std::vector<CollectiveOp>& ops, CollectiveKind kind) {
  std::vector<CollectiveOp> found;
  for (const CollectiveOp& op : ops) {
    if (op.kind == kind) {
      found.push_back(op);
    }
  }
  return found;
}

std::string texts(const ShardPlan& plan, const PassPlan& pass, Channel channel) {
  std::string text;
  for (const CollectiveOp& op : expand(plan, pass)) {
    if (op.channel == channel) {
      text += op.text(plan) + "; ";
    }
  }
  return text;
}

ShardPlan::Options small_options(const char* strategy, std::int64_t group = 0) {
  ShardPlan::Options options = shard_options(4, strategy, group, 4);
  options.parallel.gather_credits = 1;  // no weights stay for a later visit
  options.units = testing::odd_units(1);
  return options;
}

}  // namespace

TEST_CASE("collective schedule: indices count up in each channel, no two hashes are alike",
          "[engine][collective][EX-2]") {
  for (const ShardPlan::Options& options : all_strategies(9)) {
    INFO(name_of(options));
    const ShardPlan plan = plan_with(options);
    std::set<std::uint64_t> hashes;
    std::size_t count = 0;
    for (const PassPlan& pass : kPasses) {
      std::array<std::uint32_t, kChannelCount> next{};
      std::size_t channel = 0;
      for (const CollectiveOp& op : expand(plan, pass)) {
        CHECK(static_cast<std::size_t>(op.channel) >= channel);  // channel by channel
        channel = static_cast<std::size_t>(op.channel);
        CHECK(op.index == next.at(channel)++);
        CHECK(op.pass.index == pass.index);
        hashes.insert(op.hash);
        ++count;
      }
    }
    CHECK(hashes.size() == count);
    CHECK((count == 0) == (plan.ranks() == 1));
  }
}

TEST_CASE("collective schedule: every rank derives the same list", "[engine][collective][EX-2]") {
  for (const ShardPlan::Options& options : all_strategies(5)) {
    for (const PassPlan& pass : kPasses) {
      const auto mine = expand(plan_with(options), pass);
      const auto yours = expand(plan_with(options), pass);
      REQUIRE(mine.size() == yours.size());
      for (std::size_t i = 0; i < mine.size(); ++i) {
        CHECK(mine[i].hash == yours[i].hash);
      }
    }
  }
}

TEST_CASE("collective schedule: another plan's collectives have other hashes",
          "[engine][collective][EX-2]") {
  ShardPlan::Options options = shard_options(4, "none");
  const auto one = expand(plan_with(options), kTrainStep);
  options.units[1].parameters[1].shape[0] = 4;
  const auto other = expand(plan_with(options), kTrainStep);
  REQUIRE(one.size() == other.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].hash != other[i].hash);
  }
}

TEST_CASE("collective schedule: each gradient is reduced once a sync, and spread once a step",
          "[engine][collective][EX-2]") {
  for (const ShardPlan::Options& options : all_strategies(6)) {
    INFO(name_of(options));
    const ShardPlan plan = plan_with(options);
    if (plan.ranks() == 1) {
      continue;
    }
    const auto ops = expand(plan, kTrainStep);
    std::map<std::pair<std::int32_t, std::int32_t>, int> reduces;
    for (const CollectiveOp& op : of_kind(ops, CollectiveKind::reduce)) {
      ++reduces[{op.part, op.group}];
    }
    const auto groups = static_cast<std::int32_t>(plan.groups().size());
    CHECK(reduces.size() == static_cast<std::size_t>(plan.train_lanes().syncs() * groups));
    CHECK(of_kind(ops, CollectiveKind::reduce).size() == reduces.size());
    std::set<std::int32_t> all_gathered, broadcast;
    for (const CollectiveOp& op : of_kind(ops, CollectiveKind::all_gather)) {
      CHECK(all_gathered.insert(op.group).second);
    }
    for (const CollectiveOp& op : of_kind(ops, CollectiveKind::broadcast)) {
      CHECK(broadcast.insert(op.group).second);
    }
    for (std::int32_t group = 0; group < groups; ++group) {
      CHECK(all_gathered.contains(group) == plan.all_gathered(static_cast<std::size_t>(group)));
      CHECK(broadcast.contains(group) == plan.broadcast(static_cast<std::size_t>(group)));
    }
    CHECK(of_kind(ops, CollectiveKind::gather).size() ==
          BufferSchedule(plan, kTrainStep).gathers().size());
    CHECK(of_kind(ops, CollectiveKind::loss_and_norm).size() == 1);
  }
}

TEST_CASE("collective schedule: a step reads as it runs", "[engine][collective][EX-2]") {
  const ShardPlan none = plan_with(small_options("none"));
  CHECK(texts(none, kTrainStep, Channel::gather).empty());
  CHECK(
      texts(none, kTrainStep, Channel::reduce) ==
      "reduce of head, sync 0; reduce of block 0, sync 0; broadcast of head; reduce of embedding, "
      "sync 0; broadcast of block 0; broadcast of embedding; ");
  CHECK(texts(none, kTrainStep, Channel::control) == "loss and norm; ");

  const ShardPlan full = plan_with(small_options("full"));
  CHECK(texts(full, kTrainStep, Channel::gather) ==
        "gather of embedding, reservation 0; gather of block 0, reservation 1; gather of head, "
        "reservation 2; "
        "gather of block 0, reservation 3; gather of embedding, reservation 4; ");
  CHECK(texts(full, kTrainStep, Channel::reduce) ==
        "reduce of head, sync 0; reduce of block 0, sync 0; reduce of embedding, sync 0; ");
  CHECK(texts(full, kEvaluation, Channel::control) == "evaluation sums; ");
  CHECK(texts(full, kNonfiniteSearch, Channel::control) == "non-finite counts; ");

  const ShardPlan gradient = plan_with(small_options("gradient"));
  CHECK(texts(gradient, kTrainStep, Channel::gather) ==
        "all_gather of embedding; all_gather of block 0; all_gather of head; ");
}

TEST_CASE("pass list: an index names its entry, of one pass as of several, and one updates",
          "[engine][collective][pass_list]") {
  const PassList one;
  for (const PassPlan& pass :
       {kEvaluation, kScoring, kReference, kSampling, kTrainStep, kNonfiniteSearch}) {
    CHECK(one.at(pass.index).name == pass.name);
  }
  CHECK(one.all().size() == 6);
  const PassList several({{}, {.compared = Compared::head_inputs}, {}});
  CHECK(several.step().size() == 4);
  CHECK(several.search().size() == 4);
  for (std::size_t i = 0; i < several.all().size(); ++i) {
    CHECK(several.all()[i].index == static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(several.step()[i].updates() == (i == 3));
    CHECK(several.step()[i].frozen == (i == 1));
    CHECK(several.step()[i].number == several.search()[i].number);
  }
  CHECK(several.step()[1].number == several.step()[2].number);
}

TEST_CASE("pass list: what blocks read of the whole step is found before the pass, on all ranks",
          "[engine][collective][pass_list][EX-2]") {
  const PassList passes({Pass{}}, /*live_reference=*/false, /*step_sums=*/true);
  for (const std::vector<PassPlan>& of : {passes.step(), passes.search()}) {
    REQUIRE(of.size() == 2);
    CHECK(of[0].loss == LossUse::block_sums);
    CHECK_FALSE(of[0].has_backward());
    CHECK_FALSE(of[0].frozen);
    CHECK(of[0].rows == LaneRows::training);
    CHECK(of[1].has_backward());
  }
  CHECK_THROWS_AS(PassList({Pass{}, Pass{}}, false, /*step_sums=*/true), CheckFailed);
  const ShardPlan full = plan_with(small_options("full"));
  const PassPlan& pass = passes.step().front();
  CHECK(texts(full, pass, Channel::gather) ==
        "gather of embedding, reservation 0; gather of block 0, reservation 1; gather of head, "
        "reservation 2; ");
  CHECK(texts(full, pass, Channel::reduce).empty());
  CHECK(texts(full, pass, Channel::control) == "block sums; ");
}

TEST_CASE("collective schedule: a group is reduced when its lowest unit is done",
          "[engine][collective][EX-2]") {
  ShardPlan::Options options = small_options("full");
  options.tied = true;
  const ShardPlan plan = plan_with(options);
  CHECK(texts(plan, kTrainStep, Channel::reduce) ==
        "reduce of block 0, sync 0; reduce of embedding + head, sync 0; ");
}

}  // namespace train::engine::collective_schedule_test
