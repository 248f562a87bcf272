#include "actors/collective_actor.hpp"

#include <catch2/catch.hpp>

#include "actors/messages/collective_messages.hpp"
#include "actors/supervision.hpp"
#include "tests/support/actor_fixture.hpp"

namespace train::actors {
namespace {

using engine::Channel;
using engine::CommandKind;

/// A collective actor of a model with four units, and somebody who asks.
struct Fixture {
  test::TrainingRun run{{}};
  RankContext context = [this] {
    run.context()->generation = 1;
    return run.context();
  }();
  CollectiveActor collective = run.world().keep(spawn_collective(run.world().system(), context));
  test::Obituary obituary{run.world().system(), collective};
  test::Recorder asker{run.world().system()};
  std::vector<std::string> answered;

  engine::CollectiveIdentity identity(std::uint64_t sequence, CommandKind kind, Channel channel,
                                      std::int32_t unit, std::uint32_t generation = 1) const {
    return identity_of(generation, sequence, {.kind = kind, .units = 4}, channel, unit);
  }
  void open(std::uint64_t sequence, CommandKind kind) {
    caf::anon_send(collective, OpenCommand{sequence, kind});
    run.world().run_actors();
  }
  void ask(const engine::CollectiveIdentity& identity) {
    run.world().keep(
        run.world().system().spawn([this, identity](caf::event_based_actor* self) -> caf::behavior {
          self->request(collective, caf::infinite, RequestCollective{identity})
              .then(
                  [this](const CollectiveFinished& done) {
                    answered.push_back(to_string(done.identity));
                  },
                  [](const caf::error&) {});
          return {[](int) {}};
        }));
    run.world().run_actors();
  }
  std::string end_text() {
    run.world().run_actors();
    REQUIRE(obituary.died());
    return failure_text(obituary.reason());
  }
};

TEST_CASE("an early request is parked and answered in its turn", "[actors][EX-2]") {
  Fixture f;
  REQUIRE(f.context->engine->unit_count() == 4);
  const auto head = f.identity(0, CommandKind::train_step, Channel::reduce, 3);
  const auto block = f.identity(0, CommandKind::train_step, Channel::reduce, 2);
  f.ask(block);
  CHECK(f.answered.empty());  // its command has not begun
  f.open(0, CommandKind::train_step);
  CHECK(f.answered.empty());  // it is the head's turn
  CHECK(f.context->waits.waiting().size() == 1);
  f.ask(head);
  CHECK(f.answered == std::vector<std::string>{to_string(head), to_string(block)});
  CHECK(f.context->waits.waiting().empty());
}

TEST_CASE("channels do not wait for each other", "[actors][EX-2]") {
  Fixture f;
  f.open(0, CommandKind::train_step);
  f.ask(f.identity(0, CommandKind::train_step, Channel::control, -1));
  CHECK(f.answered.size() == 1);
}

TEST_CASE("a request that nothing expects names both sides", "[actors][EX-2]") {
  Fixture f;
  f.open(0, CommandKind::train_step);
  auto wrong = f.identity(0, CommandKind::train_step, Channel::reduce, 3);
  wrong.hash += 1;
  f.ask(wrong);
  const std::string text = f.end_text();
  CHECK_THAT(text, Catch::Contains("collective"));
  CHECK_THAT(text, Catch::Contains(to_string(wrong)));
  CHECK_THAT(text, Catch::Contains("expected"));
  CHECK(f.answered.empty());
}

TEST_CASE("a request made twice ends the actor", "[actors][EX-2]") {
  Fixture f;
  f.open(0, CommandKind::train_step);
  const auto parked = f.identity(0, CommandKind::train_step, Channel::reduce, 0);
  f.ask(parked);
  CHECK_FALSE(f.obituary.died());
  f.ask(parked);
  CHECK_THAT(f.end_text(), Catch::Contains("twice"));
}

TEST_CASE("a newer generation is an error, an older one is dropped", "[actors][EX-2]") {
  Fixture f;
  f.open(0, CommandKind::train_step);
  f.ask(f.identity(0, CommandKind::train_step, Channel::reduce, 3, /*generation=*/0));
  CHECK_FALSE(f.obituary.died());
  CHECK(f.answered.empty());
  CHECK(f.context->waits.waiting().empty());
  f.ask(f.identity(0, CommandKind::train_step, Channel::reduce, 3));
  CHECK(f.answered.size() == 1);  // the old one took nobody's turn
  f.ask(f.identity(0, CommandKind::train_step, Channel::reduce, 2, /*generation=*/2));
  CHECK_THAT(f.end_text(), Catch::Contains("newer generation"));
}

}  // namespace
}  // namespace train::actors
