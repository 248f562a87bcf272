#include "engine/sharding/buffer_reservations.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <random>
#include <set>

#include "tests/engine/sharding/shard_options.hpp"

namespace train::engine::buffer_reservations_test {
namespace {

using testing::all_strategies;
using testing::index_of;
using testing::name_of;
using testing::plan_with;
using testing::shard_options;
using Gathers = std::vector<std::int32_t>;

/// Plays the layers, the transport and the reductions of one rank through one command: the next
/// thing that happens is drawn. Counts for itself what each reservation is used for.
class Player {
 public:
  Player(const ShardPlan& plan, const PassPlan& pass, std::int64_t rank, std::uint64_t seed)
      : plan_(plan),
        pass_(pass),
        rank_(rank),
        schedule_(plan, pass),
        book_(plan, schedule_, pass, rank),
        random_(seed),
        gradient_buffers_(pools_gradients(plan)),
        uses_(schedule_.gathers().size(), 0) {
    for (std::size_t visit = 0; visit < schedule_.visits().size(); ++visit) {
      if (lanes().lane(rank, schedule_.visits()[visit].round)) {
        visits_.push_back(visit);
        if (schedule_.gather_of(visit) >= 0) {
          ++uses_[index_of(schedule_.gather_of(visit))];
        }
      }
    }
    for (std::int64_t sync = 0; trains() && plan.ranks() > 1 && sync < lanes().syncs(); ++sync) {
      for (std::size_t group = plan.groups().size(); group-- > 0;) {
        reductions_.push_back({group, sync});
      }
    }
  }

  /// To the end; what cannot go on is a failure.
  void play() {
    while (act()) {
    }
    CHECK(visits_.empty());
    CHECK(reductions_.empty());
    CHECK(started_.size() == schedule_.gathers().size());
    CHECK(book_.finished());
    std::sort(ended_.begin(), ended_.end());
    CHECK(ended_ == started_);  // each of them once
  }

 private:
  struct Reduction {
    std::size_t group;
    std::int64_t sync;
  };

  [[nodiscard]] bool trains() const { return pass_.updates(); }
  [[nodiscard]] const LaneSchedule& lanes() const { return plan_.lanes_of(pass_); }
  void finalize() {
    book_.finalize();
    finalized_ = true;
  }

  bool act() {
    const bool visit_next = may_visit();  // says what it wants: first of all
    std::vector<int> ways;
    if (!finalized_) {
      ways.push_back(0);
    }
    if (!under_way_.empty()) {
      ways.push_back(1);
    }
    if (visit_next) {
      ways.push_back(2);
    }
    if (may_reduce()) {
      ways.push_back(3);
    }
    if (ways.empty()) {
      return false;
    }
    switch (ways[random_() % ways.size()]) {
      case 0:
        finalize();
        break;
      case 1:  // the gather channel keeps its order
        book_.gathered(under_way_.front());
        under_way_.pop_front();
        break;
      case 2:
        visit();
        break;
      default:
        reduce();
    }
    start_gathers();
    for (const std::int32_t gather : book_.take_ended()) {
      CHECK(uses_[index_of(gather)] == 0);
      ended_.push_back(gather);
    }
    return true;
  }

  /// The layers' next visit, if it has its weights and its memory.
  bool may_visit() {
    if (visits_.empty()) {
      return false;
    }
    const std::size_t visit = visits_.front();
    const std::int32_t gather = schedule_.gather_of(visit);
    if (gather >= 0) {
      book_.want(gather);
      wanted_.insert(gather);
      start_gathers();
      if (!book_.ready(gather)) {
        return false;
      }
    }
    const Visit& one = schedule_.visits()[visit];
    return !gradient_buffers_ || !writes(visit) ||
           book_.gradient_free(plan_.group_of(one.unit), plan_.train_lanes().sync_of(one.round),
                               schedule_.gradient_buffer_of(visit));
  }
  [[nodiscard]] bool writes(std::size_t visit) const {
    const Visit& one = schedule_.visits()[visit];
    return !pass_.evaluates() &&
           (one.backward || plan_.units()[one.unit].traits.gradient_in_forward);
  }

  void visit() {
    const std::size_t visit = visits_.front();
    visits_.pop_front();
    const std::int32_t gather = schedule_.gather_of(visit);
    if (gather >= 0) {
      CHECK(std::count(ended_.begin(), ended_.end(), gather) == 0);
      --uses_[index_of(gather)];
    }
    if (gradient_buffers_ && writes(visit)) {
      check_write(visit);
    }
    book_.visited(visit);
  }
  /// Nothing that is still needed lies where this visit writes its gradient.
  void check_write(std::size_t visit) const {
    const Visit& one = schedule_.visits()[visit];
    const std::int32_t gradient_buffer = schedule_.gradient_buffer_of(visit);
    for (std::int32_t other = 0; other < gradient_buffer; ++other) {
      const Reservation& reservation = schedule_.gradient_buffers()[index_of(other)];
      if (reservation.buffer == schedule_.gradient_buffers()[index_of(gradient_buffer)].buffer) {
        CHECK(is_done_with(reservation));
      }
    }
    const std::size_t group = plan_.group_of(one.unit);
    if (trains() && plan_.own_gradient(group)) {
      const std::int64_t sync = plan_.train_lanes().sync_of(one.round);
      CHECK(std::none_of(reductions_.begin(), reductions_.end(), [&](const Reduction& reduction) {
        return reduction.group == group && reduction.sync < sync;
      }));
    }
  }
  [[nodiscard]] bool is_done_with(const Reservation& reservation) const {
    const Visit& first = schedule_.visits()[reservation.first];
    const bool copied_by_reduction = trains() && !plan_.own_gradient(reservation.group);
    if (copied_by_reduction) {
      const std::int64_t sync = plan_.train_lanes().sync_of(first.round);
      return std::none_of(reductions_.begin(), reductions_.end(), [&](const Reduction& one) {
        return one.group == reservation.group && one.sync == sync;
      });
    }
    return std::none_of(visits_.begin(), visits_.end(), [&](std::size_t visit) {
      return visit <= reservation.last &&
             plan_.group_of(schedule_.visits()[visit].unit) == reservation.group;
    });
  }

  /// The reduce channel's next one: when this rank's lanes of the sync are through the group.
  [[nodiscard]] bool may_reduce() const {
    if (reductions_.empty()) {
      return false;
    }
    const Reduction& next = reductions_.front();
    return std::none_of(visits_.begin(), visits_.end(), [&](std::size_t visit) {
      const Visit& one = schedule_.visits()[visit];
      return plan_.group_of(one.unit) == next.group &&
             plan_.train_lanes().sync_of(one.round) == next.sync;
    });
  }
  void reduce() {
    const Reduction one = reductions_.front();
    reductions_.pop_front();
    book_.packed(one.group, one.sync);
  }

  void start_gathers() {
    for (const std::int32_t gather : book_.start_gathers()) {
      CHECK(finalized_);
      CHECK(gather == static_cast<std::int32_t>(started_.size()));  // in order, each once
      const Reservation& reservation = schedule_.gathers()[index_of(gather)];
      for (const std::int32_t other : started_) {
        if (schedule_.gathers()[index_of(other)].buffer == reservation.buffer) {
          CHECK(uses_[index_of(other)] == 0);
        }
      }
      if (uses_[index_of(gather)] > 0 && !wanted_.contains(gather)) {
        const std::int64_t prefetch = reservation.backward ? plan_.parallel().prefetch_backward
                                                           : plan_.parallel().prefetch_forward;
        const auto ahead = std::count_if(started_.begin(), started_.end(), [&](auto other) {
          return uses_[index_of(other)] > 0 && !wanted_.contains(other);
        });
        CHECK(ahead < prefetch);
      }
      started_.push_back(gather);
      under_way_.push_back(gather);
    }
  }

  const ShardPlan& plan_;
  PassPlan pass_;
  std::int64_t rank_;
  BufferSchedule schedule_;
  BufferReservations book_;
  std::mt19937_64 random_;
  bool gradient_buffers_;
  bool finalized_ = false;
  std::deque<std::size_t> visits_;      // of this rank, to come
  std::vector<std::int64_t> uses_;      // of each gather: visits to come
  std::deque<Reduction> reductions_;    // to come, in the order of the channel
  std::deque<std::int32_t> under_way_;  // gathers
  Gathers started_, ended_;
  std::set<std::int32_t> wanted_;
};

TEST_CASE(
    "reservation book: in any order every reservation begins and ends, none uses another's memory",
    "[engine][lease_book][EX-4]") {
  std::uint64_t seed = Catch::rngSeed();
  int played = 0;
  for (const ShardPlan::Options& base : all_strategies(4, 5)) {
    for (const char* reshard : {"after_forward", "never", "2"}) {
      for (const std::int64_t few : {0, 1, 2}) {  // prefetch, and credits
        ShardPlan::Options options = base;
        options.parallel.reshard = reshard;
        options.parallel.prefetch_forward = options.parallel.prefetch_backward = few;
        options.parallel.gather_credits = few + 1;
        options.parallel.sync = few == 0 ? "last_lane" : few == 1 ? "auto" : "2";
        options.parallel.wrapping = {few == 2 ? "head" : "per_block"};
        if (!ShardPlan::make(options)) {
          continue;
        }
        const ShardPlan plan = plan_with(options);
        for (const PassPlan& pass : {kTrainStep, kEvaluation, kNonfiniteSearch, kScoring}) {
          for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
            INFO(name_of(options) << ", prefetch " << few << ", " << pass.name.trace << ", rank "
                                  << rank << ", seed " << ++seed);
            Player(plan, pass, rank, seed).play();
            ++played;
          }
        }
      }
    }
  }
  CHECK(played > 1000);
}

struct Full {
  ShardPlan::Options options = [] {
    ShardPlan::Options full = shard_options(2, "full", 0, 2);
    full.parallel.prefetch_forward = 1;
    full.parallel.prefetch_backward = 1;
    full.parallel.gather_credits = 3;
    full.eval_lanes = 1;
    return full;
  }();
};

TEST_CASE("reservation book: weights go out when the update before has run",
          "[engine][lease_book]") {
  const ShardPlan plan = plan_with(Full().options);
  const BufferSchedule schedule(plan, kTrainStep);
  BufferReservations book(plan, schedule, kTrainStep, 0);
  book.want(0);
  CHECK(book.start_gathers().empty());
  book.finalize();
  CHECK(book.start_gathers() == Gathers{0, 1});  // the wanted one, and one ahead
  CHECK(book.start_gathers().empty());           // once
  CHECK_FALSE(book.ready(0));
  book.gathered(0);
  CHECK(book.ready(0));
  CHECK_FALSE(book.ready(1));
}

TEST_CASE("reservation book: without prefetch a gather waits for its layer",
          "[engine][lease_book]") {
  ShardPlan::Options options = Full().options;
  options.parallel.prefetch_forward = 0;
  const ShardPlan plan = plan_with(options);
  const BufferSchedule schedule(plan, kTrainStep);
  BufferReservations book(plan, schedule, kTrainStep, 0);
  book.finalize();
  CHECK(book.start_gathers().empty());
  book.want(0);
  CHECK(book.start_gathers() == Gathers{0});
}

TEST_CASE("reservation book: prefetch goes as far as buffers are free",
          "[engine][lease_book][EX-4]") {
  ShardPlan::Options options = Full().options;
  options.parallel.prefetch_forward = 100;
  const ShardPlan plan = plan_with(options);
  const BufferSchedule schedule(plan, kTrainStep);
  BufferReservations book(plan, schedule, kTrainStep, 0);
  book.finalize();
  CHECK(book.gathers_out() == 0);
  CHECK(book.start_gathers() == Gathers{0, 1, 2});
  CHECK(book.gathers_out() == 3);
  book.gathered(0);
  CHECK(book.start_gathers().empty());
  book.visited(0);
  CHECK(book.take_ended() == Gathers{0});
  CHECK(book.gathers_out() == 2);
  CHECK(book.take_ended().empty());
  CHECK(book.start_gathers() == Gathers{3});
}

TEST_CASE("reservation book: a rank without a lane gathers all the same",
          "[engine][lease_book][EX-1]") {
  const ShardPlan plan = plan_with(Full().options);
  const BufferSchedule schedule(plan, kEvaluation);
  REQUIRE_FALSE(plan.eval_lanes().lane(1, 0).has_value());
  BufferReservations book(plan, schedule, kEvaluation, 1);
  book.finalize();
  Gathers started;
  for (Gathers next = book.start_gathers(); !next.empty(); next = book.start_gathers()) {
    for (const std::int32_t gather : next) {
      CHECK_FALSE(book.finished());
      started.push_back(gather);
      book.gathered(gather);
    }
  }
  CHECK(started.size() == plan.groups().size());
  CHECK(book.take_ended() == started);
  CHECK(book.finished());
}

TEST_CASE("reservation book: partial sums are not overwritten before they are sent",
          "[engine][lease_book]") {
  ShardPlan::Options options = shard_options(2, "none", 0, 8);
  options.parallel.sync = "2";  // two syncs of two lanes
  const ShardPlan plan = plan_with(options);
  REQUIRE(plan.own_gradient(0));
  REQUIRE(plan.train_lanes().syncs() == 2);
  const BufferSchedule schedule(plan, kTrainStep);
  BufferReservations book(plan, schedule, kTrainStep, 0);
  CHECK(book.gradient_free(1, 0, -1));
  CHECK_FALSE(book.gradient_free(1, 1, -1));
  book.packed(0, 0);
  CHECK_FALSE(book.gradient_free(1, 1, -1));
  book.packed(1, 0);
  CHECK(book.gradient_free(1, 1, -1));
}

TEST_CASE("reservation book: nothing is lent where everything is resident",
          "[engine][lease_book]") {
  CHECK_FALSE(uses_pool(plan_with(shard_options(1, "full"))));
  CHECK_FALSE(pools_gradients(plan_with(shard_options(1, "none"))));
  ShardPlan::Options none = shard_options(4, "none");
  none.parallel.sync = "last_lane";
  CHECK_FALSE(pools_weights(plan_with(none), 0));
  CHECK(pools_weights(plan_with(shard_options(4, "optimizer")), 0));  // they have to be fresh
  CHECK(pools_weights(plan_with(shard_options(4, "full")), 0));
  CHECK(pools_gradients(plan_with(shard_options(4, "gradient"))));
}

}  // namespace
}  // namespace train::engine::buffer_reservations_test
