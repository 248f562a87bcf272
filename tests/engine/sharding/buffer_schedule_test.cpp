#include "engine/sharding/buffer_schedule.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <vector>

#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::buffer_schedule_test {
namespace {

using testing::all_strategies;
using testing::name_of;
using testing::plan_with;
using testing::shard_options;

constexpr PassPlan kPasses[] = {kTrainStep, kEvaluation, kNonfiniteSearch};

/// Every strategy x reshard x wrapping x sync, a few ranks.
std::vector<ShardPlan::Options> many_plans() {
  std::vector<ShardPlan::Options> cases;
  for (const ShardPlan::Options& base : all_strategies(4)) {
    for (const char* reshard : {"after_forward", "never", "2"}) {
      for (const char* wrapping : {"per_block", "by_size", "block 1", "*"}) {
        for (const char* sync : {"auto", "last_lane", "2"}) {
          for (const std::int64_t credits : {1, 2, 3}) {
            ShardPlan::Options options = base;
            options.parallel.reshard = reshard;
            options.parallel.wrapping = {wrapping};
            options.parallel.wrap_min_parameters = 150;
            options.parallel.sync = sync;
            options.parallel.gather_credits = credits;
            options.tied = credits == 2;
            if (ShardPlan::make(options).ok()) {
              cases.push_back(options);
            }
          }
        }
      }
    }
  }
  return cases;
}

void check_buffers(const std::vector<Reservation>& reservations, std::int64_t buffers) {
  for (std::size_t i = 0; i < reservations.size(); ++i) {
    const Reservation& reservation = reservations[i];
    CHECK((0 <= reservation.buffer && reservation.buffer < buffers));
    CHECK(reservation.first <= reservation.last);
    CHECK((i == 0 || reservations[i - 1].first < reservation.first));
    std::int32_t before = -1;
    for (std::size_t j = 0; j < i; ++j) {
      if (reservations[j].buffer == reservation.buffer) {
        CHECK(reservations[j].last < reservation.first);
        before = static_cast<std::int32_t>(j);
      }
    }
    CHECK(reservation.before == before);
  }
}

std::int64_t most_open(const std::vector<Reservation>& reservations, std::size_t visits) {
  std::int64_t most = 0;
  for (std::size_t visit = 0; visit < visits; ++visit) {
    std::int64_t open = 0;
    for (const Reservation& reservation : reservations) {
      open += reservation.first <= visit && visit <= reservation.last ? 1 : 0;
    }
    most = std::max(most, open);
  }
  return most;
}

void check_visits(const ShardPlan& plan, const BufferSchedule& schedule) {
  const std::vector<Visit>& visits = schedule.visits();
  for (std::size_t i = 0; i < visits.size(); ++i) {
    const Visit& visit = visits[i];
    CHECK(schedule.visit(visit.round, visit.backward, visit.unit) == i);
    const std::size_t group = plan.group_of(visit.unit);
    const std::int32_t gather = schedule.gather_of(i);
    CHECK((gather < 0) == plan.resident(group));
    if (gather >= 0) {
      const Reservation& reservation = schedule.gathers().at(static_cast<std::size_t>(gather));
      CHECK(reservation.group == group);
      CHECK((reservation.first <= i && i <= reservation.last));
    }
    const std::int32_t gradient_buffer = schedule.gradient_buffer_of(i);
    if (gradient_buffer >= 0) {
      const Reservation& reservation =
          schedule.gradient_buffers().at(static_cast<std::size_t>(gradient_buffer));
      CHECK(reservation.group == group);
      CHECK((reservation.first <= i && i <= reservation.last));
      CHECK(visits[reservation.first].round == visits[reservation.last].round);
    }
  }
}

std::string text_of(const ShardPlan& plan, const std::vector<Reservation>& reservations) {
  std::string text;
  for (const Reservation& reservation : reservations) {
    text += plan.groups()[reservation.group].name + " " + std::to_string(reservation.first) + "-" +
            std::to_string(reservation.last) + (reservation.from_smaller_group ? " small" : "") +
            (reservation.keeps_rows ? " keeps" : "") + "; ";
  }
  return text;
}

ShardPlan small_plan(const char* reshard, std::int64_t ranks = 4, std::int64_t credits = 1) {
  ShardPlan::Options options = shard_options(ranks, "full", 0, 8);
  options.units = testing::odd_units(1);
  options.parallel.reshard = reshard;
  options.parallel.gather_credits = credits;
  return plan_with(options);
}

}  // namespace

TEST_CASE("buffer schedule: each visit has its weights, no buffer has two users",
          "[engine][sharding][EX-4]") {
  for (const ShardPlan::Options& options : many_plans()) {
    INFO(name_of(options) << ", wrapping " << options.parallel.wrapping.front() << ", credits "
                          << options.parallel.gather_credits);
    const ShardPlan plan = plan_with(options);
    for (const PassPlan& pass : kPasses) {
      const BufferSchedule schedule(plan, pass);
      check_visits(plan, schedule);
      check_buffers(schedule.gathers(), plan.gather_buffers());
      check_buffers(schedule.gradient_buffers(), gradient_buffer_count(plan));
      CHECK(most_open(schedule.gathers(), schedule.visits().size()) <= plan.gather_buffers());
    }
    const BufferSchedule step(plan, kTrainStep);
    CHECK(most_open(step.gathers(), step.visits().size()) >= plan.gather_buffers_needed());
    CHECK(plan.gather_buffers() >= plan.gather_buffers_needed());
  }
}

TEST_CASE("buffer schedule: the needed gather buffers are enough, one fewer is refused",
          "[engine][sharding][EX-4]") {
  for (const ShardPlan::Options& options : many_plans()) {
    const ShardPlan plan = plan_with(options);
    if (plan.reshard_ranks() == 1) {
      continue;  // a buffer for each group, whatever the credits
    }
    ShardPlan::Options changed = options;
    changed.parallel.gather_credits = plan.gather_buffers_needed();
    CHECK(ShardPlan::make(changed).ok());
    changed.parallel.gather_credits -= 1;
    CHECK(ShardPlan::make(changed).ok() == (plan.gather_buffers_needed() == 0));
  }
}

TEST_CASE("buffer schedule: gradients are written where there is a gradient buffer for them",
          "[engine][sharding]") {
  for (const ShardPlan::Options& options : many_plans()) {
    INFO(name_of(options));
    const ShardPlan plan = plan_with(options);
    const BufferSchedule schedule(plan, kTrainStep);
    for (std::size_t i = 0; i < schedule.visits().size(); ++i) {
      const Visit& visit = schedule.visits()[i];
      const bool writes = visit.backward || plan.units()[visit.unit].traits.gradient_in_forward;
      CHECK((schedule.gradient_buffer_of(i) >= 0) ==
            (writes && plan.uses_shared_gradient(plan.group_of(visit.unit))));
      // One gradient buffer takes all that a group writes in a round.
      for (std::size_t j = 0; j < i; ++j) {
        const Visit& other = schedule.visits()[j];
        if (schedule.gradient_buffer_of(i) >= 0 && schedule.gradient_buffer_of(j) >= 0) {
          CHECK((schedule.gradient_buffer_of(i) == schedule.gradient_buffer_of(j)) ==
                (visit.round == other.round &&
                 plan.group_of(visit.unit) == plan.group_of(other.unit)));
        }
      }
    }
  }
}

TEST_CASE("buffer schedule: neighbouring visits of a group share a gather", "[engine][sharding]") {
  // Two rounds of embedding, block, head: the head turns round, and so does the embedding.
  const ShardPlan plan = small_plan("after_forward");
  CHECK(text_of(plan, BufferSchedule(plan, kTrainStep).gathers()) ==
        "embedding 0-0; block 0 1-1; head 2-3; block 0 4-4; embedding 5-6; block 0 7-7; head 8-9; "
        "block 0 10-10; embedding 11-11; ");
  CHECK(text_of(plan, BufferSchedule(plan, kEvaluation).gathers()) ==
        "embedding 0-0; block 0 1-1; head 2-2; ");
}

TEST_CASE("buffer schedule: reshard never gathers once", "[engine][sharding]") {
  const ShardPlan plan = small_plan("never");
  CHECK(text_of(plan, BufferSchedule(plan, kTrainStep).gathers()) ==
        "embedding 0-11; block 0 1-10; head 2-9; ");
  CHECK(plan.gather_buffers() == 3);
}

TEST_CASE("buffer schedule: a smaller group keeps what the backward pass gathers again",
          "[engine][sharding]") {
  const ShardPlan plan = small_plan("2");
  CHECK(text_of(plan, BufferSchedule(plan, kTrainStep).gathers()) ==
        "embedding 0-0 keeps; block 0 1-1 keeps; head 2-3; block 0 4-4 small; embedding 5-6; "
        "block 0 7-7; head 8-9; block 0 10-10 small; embedding 11-11 small; ");
  CHECK(text_of(plan, BufferSchedule(plan, kEvaluation).gathers()) ==
        "embedding 0-0; block 0 1-1; head 2-2; ");
  // As many ranks as keep the weights anyway: nothing to copy.
  const ShardPlan all = small_plan("2", 2);
  CHECK(text_of(all, BufferSchedule(all, kTrainStep).gathers()).find("keeps") == std::string::npos);
}

TEST_CASE("buffer schedule: weights stay where a buffer is left over", "[engine][sharding][EX-4]") {
  // Two rounds of embedding, three blocks and a head. The prefetch takes one of two buffers: what
  // it would gather for the visit after next anyhow can as well stay.
  ShardPlan::Options options = shard_options(4, "full", 0, 8);
  options.parallel.gather_credits = 2;
  const auto gathers = [&options] {
    const ShardPlan plan = plan_with(options);
    return text_of(plan, BufferSchedule(plan, kTrainStep).gathers());
  };
  CHECK(gathers() ==
        "embedding 0-0; block 0 1-1; block 1 2-2; block 2 3-6; head 4-5; block 1 7-7; "
        "block 0 8-11; embedding 9-10; block 1 12-12; block 2 13-16; head 14-15; block 1 17-17; "
        "block 0 18-18; embedding 19-19; ");
  options.parallel.gather_credits = 3;
  CHECK(gathers() ==
        "embedding 0-0; block 0 1-1; block 1 2-17; block 2 3-6; head 4-5; block 0 8-11; "
        "embedding 9-10; block 2 13-16; head 14-15; block 0 18-18; embedding 19-19; ");
  options.parallel.gather_credits = 5;
  CHECK(gathers() == "embedding 0-19; block 0 1-18; block 1 2-17; block 2 3-16; head 4-15; ");
}

TEST_CASE("buffer schedule: more buffers never gather more often, one each gathers once",
          "[engine][sharding]") {
  for (const ShardPlan::Options& base : many_plans()) {
    for (const PassPlan& pass : kPasses) {
      std::size_t before = std::numeric_limits<std::size_t>::max();
      for (std::int64_t credits = 1; credits <= 5; ++credits) {
        ShardPlan::Options options = base;
        options.parallel.gather_credits = credits;
        const ShardPlan plan = plan_with(options);
        const std::size_t now = BufferSchedule(plan, pass).gathers().size();
        INFO(name_of(options) << ", credits " << credits);
        CHECK(now <= before);
        before = now;
        if (credits == 5 && BufferSchedule(plan, pass).visits().size() > 0) {
          CHECK(now == static_cast<std::size_t>(plan.gather_buffers()));
        }
      }
    }
  }
}

TEST_CASE("buffer schedule: what stays never holds the prefetch up", "[engine][sharding]") {
  for (const std::int64_t prefetch : {0, 1, 2, 3}) {
    for (const std::int64_t credits : {1, 2, 3, 4, 5}) {
      ShardPlan::Options options = shard_options(2, "full", 0, 8);
      options.parallel.gather_credits = credits;
      options.parallel.prefetch_forward = options.parallel.prefetch_backward = prefetch;
      CAPTURE(prefetch, credits);
      const BufferSchedule schedule(plan_with(options), kTrainStep);
      const auto& reservations = schedule.gathers();
      std::vector<std::size_t> runs;  // first visits of stretches of one group
      for (std::size_t i = 0; i < schedule.visits().size(); ++i) {
        if (i == 0 || schedule.visits()[i].unit != schedule.visits()[i - 1].unit) {
          runs.push_back(i);
        }
      }
      const auto ahead = std::min(prefetch, credits - 1);
      for (const Reservation& reservation : reservations) {
        const auto run = std::find(runs.begin(), runs.end(), reservation.first) - runs.begin();
        if (reservation.before >= 0 && run >= ahead) {
          CHECK(reservations[static_cast<std::size_t>(reservation.before)].last <
                runs[static_cast<std::size_t>(run - ahead)]);
        }
      }
    }
  }
}

TEST_CASE("buffer schedule: what a smaller group sends was kept by an earlier reservation",
          "[engine][sharding]") {
  for (const ShardPlan::Options& base : many_plans()) {
    const ShardPlan plan = plan_with(base);
    const BufferSchedule schedule(plan, kTrainStep);
    const auto& gathers = schedule.gathers();
    for (std::size_t i = 0; i < gathers.size(); ++i) {
      CHECK(gathers[i].from_smaller_group == (gathers[i].keeper >= 0));
      if (gathers[i].keeper >= 0) {
        const Reservation& keeper = gathers.at(static_cast<std::size_t>(gathers[i].keeper));
        CHECK(keeper.keeps_rows);
        CHECK(keeper.group == gathers[i].group);
        CHECK(keeper.last < gathers[i].first);
      }
    }
  }
}

TEST_CASE("buffer schedule: leaves are as many as overlap, and one more where sums travel",
          "[engine][sharding]") {
  CHECK(gradient_buffer_count(plan_with(shard_options(1, "none"))) == 1);
  CHECK(gradient_buffer_count(plan_with(shard_options(1, "none", 0, 1))) == 0);
  CHECK(gradient_buffer_count(plan_with(shard_options(4, "full"))) == 2);
  CHECK(gradient_buffer_count(plan_with(shard_options(9, "none"))) == 0);
  ShardPlan::Options options = shard_options(4, "full");
  options.tied = true;  // the pair's gradient buffer spans the whole backward pass
  CHECK(gradient_buffer_count(plan_with(options)) == 3);
  options.parallel.wrapping = {"nothing*", "*"};
  CHECK_FALSE(ShardPlan::make(options).ok());
}

TEST_CASE("buffer schedule: one rank gathers nothing", "[engine][sharding]") {
  const ShardPlan plan = plan_with(shard_options(1, "full"));
  CHECK(plan.gather_buffers() == 0);
  CHECK(plan.gather_buffers_needed() == 0);
  CHECK(BufferSchedule(plan, kTrainStep).gathers().empty());
}

}  // namespace train::engine::buffer_schedule_test
