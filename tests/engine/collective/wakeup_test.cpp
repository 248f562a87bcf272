#include "engine/collective/shared_inbox.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/harness/every_order.hpp"

// P2: an owner that has been rung does not sleep on, whatever the order of the steps and wherever a
// ringer is killed.
namespace train::engine::wakeup_test {
namespace {

using test::EveryOrder;
using test::Player;
using test::Role;

constexpr std::size_t kWakeup = 0;
constexpr std::size_t kSent = 1;      // What the owner waits for.
constexpr std::size_t kSleeping = 2;  // Of wakeups that have a word of its own for it.

/// The word of a wakeup, as a player sees it.
class EmulatedWord {
 public:
  explicit EmulatedWord(Player& player) : player_(&player) {}

  [[nodiscard]] std::uint32_t load() const { return player_->load(kWakeup); }
  std::uint32_t fetch_add(std::uint32_t n) { return player_->fetch_add(kWakeup, n); }
  bool compare_exchange(std::uint32_t expected, std::uint32_t desired) {
    return player_->compare_exchange(kWakeup, expected, desired);
  }
  [[nodiscard]] bool wait(std::uint32_t value) {
    player_->wait(kWakeup, value);
    return true;
  }
  void wake() { player_->wake(); }

 private:
  Player* player_;
};

struct Wakeup {
  static void ring(Player& player) {
    EmulatedWord word(player);
    wakeup::ring(word);
  }
  static void sleep(Player& player, std::uint32_t seen) {
    EmulatedWord word(player);
    (void)wakeup::sleep(word, seen);
  }
};

/// Who rings takes the mark of the sleeper away, so that those after it save a system call.
struct WakeupThatRingersClear {
  static void ring(Player& player) {
    player.fetch_add(kWakeup, wakeup::kRing);
    if (player.load(kSleeping) != 0 && player.exchange(kSleeping, 0) != 0) {
      player.wake();
    }
  }
  static void sleep(Player& player, std::uint32_t seen) {
    player.store(kSleeping, 1);
    player.wait(kWakeup, seen);
    player.store(kSleeping, 0);
  }
};

/// Who rings looks for the sleeper before it counts.
struct WakeupThatLooksFirst : Wakeup {
  static void ring(Player& player) {
    const bool sleeps = (player.load(kWakeup) & wakeup::kSleeps) != 0;
    player.fetch_add(kWakeup, wakeup::kRing);
    if (sleeps) {
      player.wake();
    }
  }
};

/// The owner waits until so many have been sent.
template <class TheWakeup>
void wait_for(Player& player, std::uint32_t sent) {
  while (true) {
    const std::uint32_t seen = wakeup::rings(EmulatedWord(player));
    if (player.load(kSent) >= sent) {
      return;
    }
    TheWakeup::sleep(player, seen);
  }
}

template <class TheWakeup>
EveryOrder messages_in_turn() {
  constexpr std::uint32_t kMessages = 3;
  const Role owner = {.body = [](Player& player) {
    for (std::uint32_t message = 1; message <= kMessages; ++message) {
      wait_for<TheWakeup>(player, message);
    }
  }};
  const Role peer = {.body = [](Player& player) {
    for (std::uint32_t message = 1; message <= kMessages; ++message) {
      player.store(kSent, message);
      TheWakeup::ring(player);
    }
  }};
  return EveryOrder({owner, peer});
}

/// A peer may be killed; who notices rings after it, or before.
template <class TheWakeup>
EveryOrder a_killed_peer() {
  const Role owner = {.body = [](Player& player) { wait_for<TheWakeup>(player, 1); }};
  const Role peer = {.body = [](Player& player) { TheWakeup::ring(player); }, .mortal = true};
  const Role watcher = {.body = [](Player& player) {
    player.store(kSent, 1);
    TheWakeup::ring(player);
  }};
  return EveryOrder({owner, peer, watcher});
}

}  // namespace

TEST_CASE("bell: no ring is missed, in whatever order the steps are taken",
          "[engine][collective][inbox][P2]") {
  const EveryOrder orders = messages_in_turn<Wakeup>();
  CHECK(orders.sleepers() == 0);
  CHECK(orders.scenes() > 1000);
}

TEST_CASE("bell: a peer that is killed while it rings keeps nobody's ring away",
          "[engine][collective][inbox][P2][P4]") {
  const EveryOrder orders = a_killed_peer<Wakeup>();
  CHECK(orders.sleepers() == 0);
  CHECK(orders.scenes() > 300);
}

TEST_CASE("bell: of bells that miss a ring it is found", "[engine][collective][inbox][P2]") {
  CHECK(messages_in_turn<WakeupThatRingersClear>().sleepers() > 0);
  CHECK(a_killed_peer<WakeupThatRingersClear>().sleepers() > 0);
  CHECK(messages_in_turn<WakeupThatLooksFirst>().sleepers() > 0);
}

}  // namespace train::engine::wakeup_test
