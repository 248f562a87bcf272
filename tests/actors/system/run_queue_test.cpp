#include "actors/system/run_queue.hpp"

#include <caf/all.hpp>
#include <catch2/catch.hpp>
#include <cstdint>
#include <future>
#include <vector>

#include "tests/support/processes/allocated.hpp"

namespace train::actors {
namespace {

/// Actors that count their messages, on one thread.
struct CountingSystem {
  CountingSystem() {
    use_run_queue(config);
    config.set("scheduler.max-threads", std::size_t{1});
  }

  /// An actor that puts each number that it receives behind the others.
  caf::actor counter(caf::actor_system& system) {
    return system.spawn<caf::lazy_init>([this](caf::event_based_actor* /*self*/) -> caf::behavior {
      return {[this](std::int32_t number) { received.push_back(number); }};
    });
  }

  std::vector<std::int32_t> received;
  caf::actor_system_config config;
};

}  // namespace

TEST_CASE("run queue: an actor runs though there is no memory while it is made ready",
          "[actors][run_queue][P2][world]") {
  CountingSystem counting;
  {
    caf::actor_system system(counting.config);
    const caf::actor counter = counting.counter(system);
    auto message = caf::make_mailbox_element(nullptr, caf::make_message_id(), {}, std::int32_t{7});
    auto* const receiver = caf::actor_cast<caf::abstract_actor*>(counter);
    {
      const test::MemoryDenied denied;
      receiver->enqueue(std::move(message), nullptr);
    }
  }
  CHECK(counting.received == std::vector<std::int32_t>{7});
}

TEST_CASE("run queue: more actors than it has room for at first run in the order of their messages",
          "[actors][run_queue][P2][world]") {
  constexpr std::int32_t kActors = 10'000;
  CountingSystem counting;
  std::vector<std::int32_t> expected;
  {
    caf::actor_system system(counting.config);
    std::promise<void> begin;
    const caf::actor first =
        system.spawn<caf::lazy_init>([&](caf::event_based_actor* /*self*/) -> caf::behavior {
          return {[&](std::int32_t) { begin.get_future().wait(); }};
        });
    std::vector<caf::actor> counters;
    for (std::int32_t i = 0; i < kActors; ++i) {
      counters.push_back(counting.counter(system));
    }
    caf::anon_send(first, std::int32_t{0});
    for (std::int32_t i = 0; i < kActors; ++i) {
      expected.push_back(i);
      caf::anon_send(counters[static_cast<std::size_t>(i)], i);
    }
    begin.set_value();
  }
  CHECK(counting.received == expected);
}

}  // namespace train::actors
