#include "actors/train/rank_actors.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <deque>
#include <utility>

#include "actors/messages/collective_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/system/supervision.hpp"
#include "kernels/device/trace.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/runs/actor_fixture.hpp"

namespace train::actors {
namespace {

using engine::Channel;
using engine::CollectiveKind;
using engine::CommandKind;
using Texts = std::vector<std::string>;

/// A transport that moves nothing: exchanges end when the test says so, or at once.
class IdleTransport final : public engine::Collectives {
 public:
  explicit IdleTransport(Texts* log) : log_(log) {}
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 2; }
  void exchange(const engine::CollectiveIdentity& identity, engine::Transfer, Done done) override {
    log_->push_back(to_string(identity));
    under_way_.push_back(std::move(done));
    if (!slow) {
      finish({});
    }
  }
  void cancel(const std::string&) override { under_way_.clear(); }
  void finish(const Status& status) {
    const Done done = std::move(under_way_.front());
    under_way_.pop_front();
    done(status);
  }

  bool slow = false;

 private:
  Texts* log_;
  std::deque<Done> under_way_;
};

test::RunSetup setup_of(const char* strategy, bool manual_streams = true) {
  test::RunSetup setup{.manual_streams = manual_streams};
  setup.parallel = test::split_over(2, strategy);
  return setup;
}

/// A rank's collective actor and somebody who asks it. The model has four units, which are the
/// groups 0 to 3.
struct Asked {
  test::TrainingRun& run;
  RankContext context;
  CollectiveActor collective = run.world().keep(spawn_collective(run.world().system(), context));
  test::DownMonitor down_monitor{run.world().system(), collective};
  test::Recorder rank{run.world().system()};
  test::Recorder buffers{run.world().system()};
  Texts answered;

  Asked(test::TrainingRun& one, RankContext of_rank) : run(one), context(std::move(of_rank)) {
    context->generation = 1;
    caf::anon_send(collective, ConnectCollective{rank.as<RankActor>(), buffers.as<BuffersActor>()});
  }
  [[nodiscard]] engine::CollectiveIdentity identity(std::uint64_t sequence, CollectiveKind kind,
                                                    std::int32_t group,
                                                    std::int32_t part = -1) const {
    const engine::CollectiveOp* op =
        context->collectives.find(engine::kTrainStep, kind, group, part);
    REQUIRE(op != nullptr);
    return context->identity(*op, sequence);
  }
  void open(std::uint64_t sequence, const engine::PassPlan& pass = engine::kTrainStep) {
    caf::anon_send(collective, Command{sequence, CommandKind::pass, pass.index,
                                       static_cast<std::int64_t>(sequence) + 6});
    run.run();
  }
  void ask(const engine::CollectiveIdentity& identity, const kernels::Event& written = {}) {
    const RequestCollective request{identity, written};
    run.world().keep(
        run.world().system().spawn([this, request](caf::event_based_actor* self) -> caf::behavior {
          self->request(collective, caf::infinite, request)
              .then(
                  [this](const CollectiveFinished& done) {
                    answered.push_back(to_string(done.identity));
                  },
                  [](const caf::error&) {});
          return {[](int) {}};
        }));
    run.run();
  }
  std::string end_text() {
    run.run();
    REQUIRE(down_monitor.died());
    return failure_text(down_monitor.reason());
  }
};

/// Rank 0 of two, with idle transports. The gather channel of a step has the four refreshes.
struct CollectiveFixture {
  explicit CollectiveFixture(bool manual_streams = true)
      : run(setup_of("optimizer", manual_streams)) {}
  test::TrainingRun run;
  Texts exchanged;
  IdleTransport* gather = nullptr;
  RankContext context = with_idle_transports();
  Asked asked{run, context};

  RankContext with_idle_transports() {
    for (auto& transport : run.context()->transports) {
      transport = std::make_unique<IdleTransport>(&exchanged);
    }
    gather = static_cast<IdleTransport*>(run.context()->transports.front().get());
    return run.context();
  }
  engine::CollectiveIdentity all_gather(std::int32_t group, std::uint64_t sequence = 0) const {
    return asked.identity(sequence, CollectiveKind::all_gather, group);
  }
};

TEST_CASE("an early request is parked and answered in its turn", "[actors][EX-2]") {
  CollectiveFixture f;
  REQUIRE(f.context->engine->unit_count() == 4);
  f.asked.ask(f.all_gather(1));
  CHECK(f.asked.answered.empty());  // its command has not begun
  f.asked.open(0);
  CHECK(f.asked.answered.empty());  // it is the turn of group 0
  CHECK(f.exchanged.empty());
  CHECK(f.context->waits.waiting().size() == 1);
  f.asked.ask(f.all_gather(0));
  CHECK(f.asked.answered == Texts{to_string(f.all_gather(0)), to_string(f.all_gather(1))});
  CHECK(f.exchanged == f.asked.answered);
  CHECK(f.context->waits.waiting().empty());
}

TEST_CASE("the board says how far each channel is, and the stream of which step", "[actors][P2]") {
  CollectiveFixture f;
  const auto gather = [&] { return f.context->board.look().channels[0]; };
  CHECK_FALSE(gather());
  f.asked.open(0);
  REQUIRE(gather());
  CHECK(gather()->phase == run::ChannelPhase::unasked);
  CHECK(f.context->describe(*gather()) ==
        "gather #0 of TrainStep 7 (all_gather of " + f.context->engine->unit_name(0) + ")");
  f.gather->slow = true;
  f.run.compute().held = true;
  f.asked.ask(f.all_gather(0));
  CHECK(f.run.compute().next_mark().step == 6);
  CHECK(gather()->phase != run::ChannelPhase::unasked);
  f.run.compute().held = false;
  f.run.run();
  CHECK(gather()->phase == run::ChannelPhase::moving);
  const std::int64_t since = gather()->since_ns;
  f.asked.ask(f.all_gather(1));
  CHECK(gather()->since_ns == since);  // another one's request is no progress of this one
  f.gather->finish({});
  f.run.run();
  CHECK(gather()->op.index == 1);
}

TEST_CASE("channels do not wait for each other", "[actors][EX-2]") {
  CollectiveFixture f;
  f.asked.open(0);
  f.asked.ask(f.asked.identity(0, CollectiveKind::loss_and_norm, -1));
  CHECK(f.asked.answered.size() == 1);
  f.gather->slow = true;
  f.asked.ask(f.all_gather(0));
  CHECK(f.asked.answered.size() == 1);
  f.asked.open(1);
  f.asked.ask(f.asked.identity(1, CollectiveKind::loss_and_norm, -1));
  CHECK(f.asked.answered.size() == 2);
}

TEST_CASE("a request that nothing expects names both sides", "[actors][EX-2]") {
  CollectiveFixture f;
  f.asked.open(0);
  auto wrong = f.all_gather(0);
  wrong.hash += 1;
  f.asked.ask(wrong);
  const std::string text = f.asked.end_text();
  CHECK_THAT(text, Catch::Contains("collective"));
  CHECK_THAT(text, Catch::Contains(to_string(wrong)));
  CHECK_THAT(text, Catch::Contains("expected"));
  CHECK(f.asked.answered.empty());
  CHECK(f.exchanged.empty());
}

TEST_CASE("a request made twice ends the actor", "[actors][EX-2]") {
  CollectiveFixture f;
  f.asked.open(0);
  f.asked.ask(f.all_gather(3));
  CHECK_FALSE(f.asked.down_monitor.died());
  f.asked.ask(f.all_gather(3));
  CHECK_THAT(f.asked.end_text(), Catch::Contains("twice"));
}

TEST_CASE("a newer generation is an error, an older one is dropped", "[actors][EX-2]") {
  CollectiveFixture f;
  f.asked.open(0);
  auto old = f.all_gather(0);
  old.generation = 0;
  f.asked.ask(old);
  CHECK_FALSE(f.asked.down_monitor.died());
  CHECK(f.asked.answered.empty());
  CHECK(f.context->waits.waiting().empty());
  f.asked.ask(f.all_gather(0));
  CHECK(f.asked.answered.size() == 1);  // the old one took nobody's turn
  auto newer = f.all_gather(1);
  newer.generation = 2;
  f.asked.ask(newer);
  CHECK_THAT(f.asked.end_text(), Catch::Contains("newer generation"));
}

TEST_CASE("staging slots bound what is under way on a channel", "[actors][EX-4]") {
  CollectiveFixture f;
  f.gather->slow = true;
  f.asked.open(0);
  for (const std::int32_t group : {3, 2, 1, 0}) {
    f.asked.ask(f.all_gather(group));
  }
  CHECK(f.exchanged == Texts{to_string(f.all_gather(0)), to_string(f.all_gather(1))});
  REQUIRE(f.exchanged.size() == engine::kStagingSlots);
  f.run.compute().held = true;
  f.gather->finish({});
  f.run.run();
  CHECK(f.asked.answered.size() == 1);  // what takes it in is on the stream
  CHECK(f.exchanged.size() == 2);       // but it has not run: the slot is not free
  f.run.compute().held = false;
  f.run.run();
  CHECK(f.exchanged.size() == 3);
  f.gather->finish({});
  f.gather->finish({});
  f.run.run();
  f.gather->finish({});
  f.run.run();
  CHECK(f.asked.answered.size() == 4);
  CHECK(f.context->waits.waiting().empty());
}

TEST_CASE("an operation waits for its own slot, also behind another command's", "[actors][EX-4]") {
  CollectiveFixture f;
  auto& control = static_cast<IdleTransport&>(*f.context->transports.back());
  control.slow = true;
  const auto norm = [&](std::uint64_t sequence) {
    return f.asked.identity(sequence, CollectiveKind::loss_and_norm, -1);
  };
  f.asked.open(0);
  f.asked.open(1);
  f.asked.ask(norm(1));
  f.asked.ask(norm(0));
  CHECK(f.exchanged == Texts{to_string(norm(0))});  // both have index 0
  control.finish({});
  f.run.run();
  CHECK(f.exchanged == Texts{to_string(norm(0)), to_string(norm(1))});
  control.finish({});
  f.run.run();
  CHECK(f.asked.answered == f.exchanged);
}

TEST_CASE("no exchange overtakes one that is still being packed", "[actors][EX-2]") {
  CollectiveFixture f;
  f.asked.open(0);
  f.run.compute().held = true;
  f.asked.ask(f.all_gather(0));
  f.asked.ask(f.all_gather(1));
  // As if the device were done with the second one first.
  caf::anon_send(f.asked.collective, OperationPacked{f.all_gather(1)});
  f.run.run();
  CHECK(f.exchanged.empty());
  f.run.compute().held = false;
  f.run.run();
  CHECK(f.exchanged == Texts{to_string(f.all_gather(0)), to_string(f.all_gather(1))});
}

TEST_CASE("an operation is packed when what it sends is written", "[actors][EX-2][world]") {
  CollectiveFixture f(/*manual_streams=*/false);
  static std::atomic<bool> waits = false;  // of this thread, from here on
  kernels::show_waits_in(waits);
  std::atomic<bool> over = false;
  std::atomic<bool> written_first = false;
  const auto writer = kernels::make_thread_stream("writer", 1);
  // It writes when the stream, inline here, waits for it, or when nobody has.
  writer->enqueue([&] {
    test::comes_true([&] { return waits || over; });
    written_first = !over;
  });
  const kernels::Event event = kernels::Event::record(*writer);
  f.asked.open(0);
  f.asked.ask(f.asked.identity(0, CollectiveKind::loss_and_norm, -1), event);
  over = true;
  CHECK(written_first);
  CHECK(f.asked.answered.size() == 1);
}

TEST_CASE("a transport that fails makes the rank's end a consequence", "[actors]") {
  CollectiveFixture f;
  f.gather->slow = true;
  f.asked.open(0);
  f.asked.ask(f.all_gather(0));
  f.gather->finish(failure("rank 1 is gone"));
  f.run.run();
  CHECK(f.asked.answered.empty());
  REQUIRE(f.asked.rank.count<WorkFailed>() == 1);
  const WorkFailed failed = f.asked.rank.all<WorkFailed>().front();
  CHECK(failed.consequence);
  CHECK(failed.exit_code == 1);
  CHECK_THAT(failed.text, Catch::Contains("rank 1 is gone"));
  CHECK_THAT(failed.text, Catch::Contains(to_string(f.all_gather(0))));
  CHECK_THAT(failed.text, Catch::Contains("all_gather of embedding"));
  CHECK_FALSE(f.asked.down_monitor.died());  // the rank ends it
}

TEST_CASE("two ranks that are at different collectives are both named", "[actors][EX-2]") {
  test::TrainingRun run(setup_of("full"));
  Asked first{run, run.context(0)};
  Asked second{run, run.context(1)};
  const bool other_command = GENERATE(false, true);
  first.open(3);
  second.open(other_command ? 4 : 3);
  first.ask(first.identity(3, CollectiveKind::gather, 0, 0));
  CHECK(first.answered.empty());
  second.ask(second.identity(other_command ? 4 : 3, CollectiveKind::gather, 0, 0));
  if (!other_command) {
    CHECK(first.answered.size() == 1);
    CHECK(second.answered == first.answered);
    return;
  }
  for (const Asked* asked : {&first, &second}) {
    CHECK(asked->answered.empty());
    REQUIRE(asked->rank.count<WorkFailed>() == 1);
    const WorkFailed failed = asked->rank.all<WorkFailed>().front();
    CHECK(failed.consequence);
    CHECK_THAT(failed.text, Catch::Contains("rank 0 is at generation 1 command 3 gather 0"));
    CHECK_THAT(failed.text, Catch::Contains("rank 1 is at generation 1 command 4 gather 0"));
  }
}

}  // namespace
}  // namespace train::actors
