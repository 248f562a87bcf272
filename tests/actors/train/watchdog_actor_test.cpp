#include "actors/train/rank_actors.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "actors/train/lane_driver.hpp"
#include "run/report/stall_chain.hpp"
#include "tests/support/harness/nanoseconds.hpp"
#include "tests/support/runs/actor_fixture.hpp"

namespace train::actors {
namespace {

const ObservedStream* stream_of(const RankObserved& observed, const std::string& name) {
  for (const ObservedStream& stream : observed.streams) {
    if (stream.name == name) {
      return &stream;
    }
  }
  return nullptr;
}

ObservedQueue credits_of(const RankObserved& observed, const std::string& what) {
  for (const ObservedQueue& queue : observed.credits) {
    if (queue.what == what) {
      return queue;
    }
  }
  FAIL("no credits " << what);
  return {};
}

/// What the head would know of all ranks after `later`, when none has got any further.
std::vector<run::HeardRank> heard_after(test::TrainingRun& run, std::int64_t now_ns,
                                        std::int64_t later) {
  std::vector<run::HeardRank> ranks;
  for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
    RankObserved observed = observe_rank(run.runtime(rank), now_ns + later);
    observed.unchanged_ns = later;
    ranks.push_back({std::move(observed), now_ns + later});
  }
  return ranks;
}

TEST_CASE("watchdog: says who waits and what a stream is in", "[actors][watchdog]") {
  test::TrainingRun run({.eval_interval = 0, .manual_streams = true});
  run.input().held = true;
  run.start();
  run.run();
  const RankObserved observed = observe_rank(run.runtime(), steady_now_ns() + 31 * kSecond);
  CHECK(observed.command == "TrainStep 1");
  CHECK(observed.begun == 0);
  CHECK(observed.finished == -1);
  REQUIRE(observed.waits.size() == 1);
  CHECK(observed.waits[0].who == "rank");
  CHECK(observed.waits[0].what == "tokens of a lane");
  CHECK(observed.waits[0].age_ns >= 31 * kSecond);
  const ObservedStream* input = stream_of(observed, "input");
  REQUIRE(input != nullptr);
  CHECK(input->doing == "read tokens of step 1, lane 0");
  CHECK(stream_of(observed, "compute") == nullptr);  // it has nothing to do
  CHECK(observed.channels.empty());                  // it is alone
  const ObservedQueue slots = credits_of(observed, "lane slots");
  CHECK(slots.length == 4);
  CHECK(slots.limit == 4);
  REQUIRE(run.waits->waiting().size() == 1);  // the launcher's board
  CHECK(run.waits->waiting().front().who == "conductor");
}

TEST_CASE("watchdog: names the unit a kernel belongs to", "[actors][watchdog]") {
  test::TrainingRun run({.eval_interval = 0, .lanes = 9, .manual_streams = true});
  run.compute().held = true;
  run.start();
  run.run();
  const RankObserved observed = observe_rank(run.runtime(), steady_now_ns());
  const ObservedStream* compute = stream_of(observed, "compute");
  REQUIRE(compute != nullptr);
  CHECK(compute->doing == run.runtime().engine->unit_name(0) + " (forward) of step 1, lane 0");
  CHECK(compute->kind == run.runtime().engine->unit_name(0) + " (forward)");
  CHECK(credits_of(observed, "training lanes").length == LaneDriver::kLanesInFlight);
}

TEST_CASE("watchdog: a run that is over waits for nothing and has held nothing",
          "[actors][watchdog][EX-4]") {
  test::TrainingRun run({.parallel = test::split_over(2, "full")});
  run.start();
  run.run();
  REQUIRE(run.over());
  CHECK(run.waits->waiting().empty());
  for (std::size_t rank = 0; rank < run.ranks(); ++rank) {
    const RankObserved observed = observe_rank(run.runtime(rank), steady_now_ns());
    CHECK(observed.waits.empty());
    CHECK(observed.streams.empty());
    CHECK(observed.command == "StopRank");
    for (const ObservedChannel& channel : observed.channels) {
      CHECK(channel.phase == -1);
    }
    for (const ObservedQueue& queue : observed.credits) {
      INFO(queue.what);
      CHECK((queue.length == 0 || queue.what == "gather buffers"));  // kept for a next step
    }
  }
  for (const WaitTable::Held& held : run.waits->held()) {
    CHECK(held.in_use == 0);
  }
}

TEST_CASE("watchdog: a rank whose compute stream stands still is found from any of its peers",
          "[actors][watchdog][P2]") {
  const auto wedged = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full");
  const auto work = GENERATE(0, 40, 150, 400);
  test::RunSetup setup{.steps = 3, .manual_streams = true};
  setup.parallel = test::split_over(3, strategy);
  test::TrainingRun run(setup);
  run.start();
  test::Random random(7);
  for (int event = 0; event < work; ++event) {
    REQUIRE(run.step(random));
  }
  run.compute(wedged).held = true;
  run.run(random);
  REQUIRE_FALSE(run.over());
  INFO("rank " << wedged << " of " << strategy << " after " << work << " events");
  const auto ranks = heard_after(run, steady_now_ns(), 6 * kSecond);
  const auto stall = run::find_stall(ranks, steady_now_ns() + 6 * kSecond, 5 * kSecond, true);
  REQUIRE(stall);
  INFO(stall->text);
  CHECK(stall->rank == static_cast<std::int32_t>(wedged));
  CHECK_FALSE(stall->circle);
  const kernels::Mark mark = run.compute(wedged).next_mark();
  CHECK_THAT(stall->text, Catch::Contains(run.runtime(wedged).describe(mark)));
  run.compute(wedged).held = false;
  run.run(random);
  CHECK(run.over());
}

/// A link that lets nothing through while it is held.
class HeldLink final : public engine::Collectives {
 public:
  explicit HeldLink(std::unique_ptr<Collectives> link) : link_(std::move(link)) {}
  [[nodiscard]] int rank() const override { return link_->rank(); }
  [[nodiscard]] int world_size() const override { return link_->world_size(); }
  void exchange(const engine::CollectiveIdentity& identity, engine::Transfer transfer,
                Done done) override {
    if (!held) {
      link_->exchange(identity, std::move(transfer), std::move(done));
      return;
    }
    waiting_.push_back([this, identity, transfer = std::move(transfer), done = std::move(done)] {
      link_->exchange(identity, transfer, done);
    });
  }
  void cancel(const std::string& reason) override { link_->cancel(reason); }
  void release() {
    held = false;
    for (const auto& exchange : std::exchange(waiting_, {})) {
      exchange();
    }
  }

  bool held = false;

 private:
  std::unique_ptr<Collectives> link_;
  std::vector<std::function<void()>> waiting_;
};

TEST_CASE("watchdog: a link on which nothing comes is told from a rank that does nothing",
          "[actors][watchdog][P2]") {
  const auto channel = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2});
  test::RunSetup setup{.steps = 3, .manual_streams = true};
  setup.parallel = test::split_over(3, "full");
  test::TrainingRun run(setup);
  auto& transport = run.runtime(1).transports[channel];
  auto wrapped = std::make_unique<HeldLink>(std::move(transport));
  HeldLink& link = *wrapped;
  transport = std::move(wrapped);
  run.start();
  test::Random random(3);
  for (int event = 0; event < 200; ++event) {
    REQUIRE(run.step(random));
  }
  link.held = true;
  run.run(random);
  REQUIRE_FALSE(run.over());
  const auto ranks = heard_after(run, steady_now_ns(), 6 * kSecond);
  const auto stall = run::find_stall(ranks, steady_now_ns() + 6 * kSecond, 5 * kSecond, true);
  REQUIRE(stall);
  INFO(stall->text);
  CHECK(stall->rank == -1);
  CHECK_FALSE(stall->circle);
  CHECK_THAT(stall->text, Catch::Contains("all have asked for it: its bytes have not come"));
  CHECK_THAT(stall->text,
             Catch::Contains(engine::channel_name(static_cast<engine::Channel>(channel))));
  link.release();
  run.run(random);
  CHECK(run.over());
}

TEST_CASE("watchdog: sends the next only when the one before was taken",
          "[actors][watchdog][EX-4]") {
  test::TrainingRun run({.manual_streams = true});
  test::Recorder observer(run.world().system());
  run.world().keep(
      spawn_watchdog(run.world().system(), run.context(), observer.as<ObserverActor>(), {}));
  for (int second = 0; second < 4; ++second) {
    run.world().run_actors();
    run.world().advance(kWatchPeriod);
  }
  CHECK(observer.count<RankObserved>() == 1);  // it answers nothing
}

TEST_CASE("watchdog: a stream that is busy with the same work makes no progress",
          "[actors][watchdog][EX-4]") {
  std::vector<RankObserved> heard;  // outlives the actors of the run, whose last messages come here
  test::TrainingRun run({.eval_interval = 0, .lanes = 9, .manual_streams = true});
  run.compute().held = true;
  run.start();
  run.run();
  REQUIRE(stream_of(observe_rank(run.runtime(), steady_now_ns()), "compute") != nullptr);
  const caf::actor observer = run.world().system().spawn([&heard]() -> caf::behavior {
    return {[&heard](const RankObserved& observed) {
      heard.push_back(observed);
      return ObservationTaken{};
    }};
  });
  run.world().keep(spawn_watchdog(run.world().system(), run.context(),
                                  caf::actor_cast<ObserverActor>(observer), {}));
  for (int second = 0; second < 3; ++second) {
    run.world().run_actors();
    run.world().advance(kWatchPeriod);
  }
  REQUIRE(heard.size() == 3);
  CHECK(heard[0].unchanged_ns == 0);
  CHECK(heard[1].unchanged_ns > 0);
  CHECK(heard[2].unchanged_ns > heard[1].unchanged_ns);
}

TEST_CASE("watchdog: tells the lengths of mailboxes", "[actors][watchdog]") {
  test::TrainingRun run({.manual_streams = true});
  test::Recorder observer(run.world().system());
  test::Recorder idle(run.world().system()), loaded(run.world().system());
  run.world().run_actors();  // the two wait for messages
  run.world().keep(spawn_watchdog(run.world().system(), run.context(), observer.as<ObserverActor>(),
                                  {{"idle", idle.actor()}, {"loaded", loaded.actor()}}));
  for (int message = 0; message < 3; ++message) {
    caf::anon_send(loaded.actor(), CheckStalls{});
  }
  // The watchdog first.
  for (int round = 0; round < 20 && observer.count<RankObserved>() == 0; ++round) {
    for (std::size_t index = 0; index < run.world().runnable(); ++index) {
      const auto* job = dynamic_cast<caf::scheduled_actor*>(run.world().scheduler().jobs[index]);
      if (job != nullptr && job != caf::actor_cast<caf::abstract_actor*>(loaded.actor())) {
        run.world().run_one(index);
        break;
      }
    }
  }
  const auto all = observer.all<RankObserved>();
  REQUIRE(all.size() == 1);
  REQUIRE(all[0].mailboxes.size() == 1);
  CHECK(all[0].mailboxes[0].what == "loaded");
  CHECK(all[0].mailboxes[0].length == 3);
  run.world().run_actors();
  CHECK(loaded.size() == 3);  // and none is lost by looking
}

}  // namespace
}  // namespace train::actors
