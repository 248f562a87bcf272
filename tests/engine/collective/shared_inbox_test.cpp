#include "engine/collective/shared_inbox.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/harness/thread_sleep.hpp"
#include "tests/support/processes/leave.hpp"

namespace train::engine::shared_inbox_test {
namespace {

using namespace std::chrono_literals;
using Clock = SharedInbox::Clock;

constexpr std::uint64_t kMark = 0x1234567890abcdefULL;

/// Ranks of one process, each with the memory of the others mapped a second time.
struct Inboxes {
  explicit Inboxes(int world_size, std::size_t channel = 1) {
    std::vector<std::shared_ptr<InboxMemory>> own;
    for (int rank = 0; rank < world_size; ++rank) {
      own.push_back(InboxMemory::make(world_size, kMark));
      REQUIRE(own.back() != nullptr);
    }
    for (int rank = 0; rank < world_size; ++rank) {
      std::vector<std::shared_ptr<InboxMemory>> peers(own.size());
      for (int peer = 0; peer < world_size; ++peer) {
        const auto index = static_cast<std::size_t>(peer);
        if (peer != rank) {
          peers[index] = InboxMemory::of(::getpid(), own[index]->descriptor(), world_size, kMark);
          REQUIRE(peers[index] != nullptr);
        }
      }
      ranks.push_back(
          std::make_unique<SharedInbox>(rank, channel, own[static_cast<std::size_t>(rank)], peers));
      words.push_back(&own.at(static_cast<std::size_t>(rank))->wakeup(channel).word);
    }
  }
  /// Whether `owner`, the thread of that rank, sleeps until somebody rings.
  [[nodiscard]] bool sleeps(std::size_t rank, pid_t owner) const {
    return (*words[rank] & wakeup::kSleeps) != 0 && test::sleep_of(owner).has_value();
  }

  std::vector<std::unique_ptr<SharedInbox>> ranks;
  std::vector<const std::atomic<std::uint32_t>*> words;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool says(const std::byte* message, std::string_view text) {
  return message != nullptr && std::memcmp(message, text.data(), text.size()) == 0;
}

/// As long as a busy machine may take. A sleeper that has missed a ring sleeps that long, and so
/// does its peer, which waits for its answer.
constexpr auto kPatience = std::chrono::minutes(4);

/// Waits until `is_there`, which somebody has to ring for. False: nobody has rung for `limit`, or
/// the ring was lost. One sleep lasts to the end of `limit` if nothing rings: a series of shorter
/// ones would find what a lost ring was for, and could not tell a ring that was lost from one that
/// came after the end of a sleep and before the look.
template <class Condition>
bool wait_for(SharedInbox& inbox, Condition is_there, Clock::duration limit = kPatience) {
  while (true) {
    const std::uint32_t rings = inbox.rings();
    if (is_there()) {
      return true;
    }
    if (!inbox.sleep(rings, Clock::now() + limit)) {
      fmt::print(stderr, "slept from ring {} to the end, now {}\n", rings, inbox.rings());
      return false;
    }
  }
}

/// One side of `count` rounds in which each sends the other a message and says taken. In turn, rank
/// 0 first: nobody rings twice before the other has answered, so a ring that is lost is made up for
/// by none that follows it.
bool play(SharedInbox& inbox, int peer, std::uint64_t count) {
  const bool first = peer == 1;
  for (std::uint64_t number = 1; number <= count; ++number) {
    const auto arrived = [&] { return inbox.message(peer, number) != nullptr; };
    if (!first && !wait_for(inbox, arrived)) {
      return false;
    }
    const std::uint64_t told = number * 3 + static_cast<std::uint64_t>(peer);
    inbox.send(peer, number, std::as_bytes(std::span(&told, 1)), {});
    if (first && !wait_for(inbox, arrived)) {
      return false;
    }
    std::uint64_t heard = 0;
    std::memcpy(&heard, inbox.message(peer, number), sizeof(heard));
    if (heard != number * 3 + static_cast<std::uint64_t>(1 - peer)) {
      fmt::print(stderr, "round {}: heard {}\n", number, heard);
      return false;
    }
    if (number % 3 != 0) {
      continue;
    }
    const auto taken = [&] { return inbox.taken(peer, number); };
    if (!first && !wait_for(inbox, taken)) {
      return false;
    }
    inbox.say_taken(peer, number);
    if (first && !wait_for(inbox, taken)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("inbox: only what is meant is mapped", "[engine][collective][inbox]") {
  const auto own = InboxMemory::make(3, kMark);
  REQUIRE(own != nullptr);
  CHECK(InboxMemory::of(::getpid(), own->descriptor(), 3, kMark) != nullptr);
  CHECK(InboxMemory::of(::getpid(), own->descriptor(), 3, kMark + 1) == nullptr);
  CHECK(InboxMemory::of(::getpid(), own->descriptor(), 4, kMark) == nullptr);
  CHECK(InboxMemory::of(::getpid(), -1, 3, kMark) == nullptr);
  int pipe[2] = {};
  REQUIRE(::pipe(pipe) == 0);
  CHECK(InboxMemory::of(::getpid(), pipe[0], 3, kMark) == nullptr);
  CHECK(::ftruncate(own->descriptor(), 10) != 0);  // nobody takes the memory away from others
  const int descriptor = own->descriptor();
  own->close_descriptor();
  CHECK(own->descriptor() == -1);
  CHECK(InboxMemory::of(::getpid(), descriptor, 3, kMark) == nullptr);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_CASE("inbox: messages find rank and channel, and two may wait",
          "[engine][collective][inbox]") {
  Inboxes inboxes(3);
  SharedInbox& first = *inboxes.ranks[0];
  SharedInbox& third = *inboxes.ranks[2];
  CHECK(first.reaches(2));
  CHECK_FALSE(first.reaches(0));
  CHECK(third.message(0, 1) == nullptr);
  first.send(2, 1, bytes_of("one"), bytes_of(" and more"));
  first.send(2, 2, bytes_of("two"), {});
  CHECK(says(third.message(0, 1), "one and more"));
  CHECK(says(third.message(0, 2), "two"));
  CHECK(third.message(0, 3) == nullptr);
  CHECK(third.message(1, 1) == nullptr);
  CHECK(inboxes.ranks[1]->message(0, 1) == nullptr);
  first.send(2, 3, bytes_of("six"), {});
  CHECK(third.message(0, 1) == nullptr);
  CHECK(says(third.message(0, 2), "two"));
  const std::vector<std::byte> most(kInboxMessageBytes - 3, std::byte{7});
  first.send(2, 4, bytes_of("six"), most);
  REQUIRE(says(third.message(0, 4), "six"));
  CHECK(std::equal(most.begin(), most.end(), third.message(0, 4) + 3));

  CHECK_FALSE(first.taken(2, 4));
  third.say_taken(0, 4);
  CHECK(first.taken(2, 4));
  CHECK_FALSE(first.taken(1, 4));
  CHECK_FALSE(third.taken(0, 4));
  first.ticket().store(99);
  CHECK(third.ticket_of(0).load() == 99);
  CHECK(third.ticket_of(1).load() == 0);
}

TEST_CASE("inbox: a sleeper is woken by its peers and by itself", "[engine][collective][inbox]") {
  Inboxes inboxes(2);
  SharedInbox& sleeper = *inboxes.ranks[0];
  const std::uint32_t before = sleeper.rings();
  const int who = GENERATE(0, 1, 2);
  bool slept = false;
  std::thread other([&, who, owner = ::gettid()] {
    slept = test::comes_true([&] { return inboxes.sleeps(0, owner); });
    if (who == 0) {
      inboxes.ranks[1]->send(0, 1, bytes_of("x"), {});
    } else if (who == 1) {
      inboxes.ranks[1]->say_taken(0, 1);
    } else {
      sleeper.ring_own();
    }
  });
  CHECK(wait_for(sleeper, [&] { return sleeper.rings() != before; }));
  other.join();
  CHECK(slept);
  CHECK(sleeper.sleep(before, Clock::now() + 1h));  // it has rung already
}

TEST_CASE("inbox: a sleep that nobody ends lasts to its end", "[engine][collective][inbox]") {
  Inboxes inboxes(2);
  SharedInbox& sleeper = *inboxes.ranks[0];
  const std::uint32_t before = sleeper.rings();
  CHECK_FALSE(sleeper.sleep(before, Clock::now()));
  bool slept = false;
  // Longer each time, until the other thread has come to see it asleep.
  for (auto lasts = 10ms; !slept && lasts < kPatience; lasts *= 2) {
    std::atomic<bool> is_over = false;
    auto seen = std::async(std::launch::async, [&, owner = ::gettid()] {
      while (!is_over && !inboxes.sleeps(0, owner)) {
        test::before_the_next_look();
      }
      return !is_over;
    });
    const auto end = Clock::now() + lasts;
    CHECK_FALSE(sleeper.sleep(before, end));
    CHECK(Clock::now() >= end);
    is_over = true;
    slept = seen.get();
  }
  CHECK(slept);
}

TEST_CASE("inbox: what nobody rings for is not found by looking again",
          "[engine][collective][inbox]") {
  Inboxes inboxes(2);
  SharedInbox& sleeper = *inboxes.ranks[0];
  SharedInbox& peer = *inboxes.ranks[1];
  // Between the look and the sleep: the one moment in which a ring can be lost.
  const auto after_the_look = [&](const auto& write) {
    return [write, looked = false]() mutable {
      if (!std::exchange(looked, true)) {
        write();
        return false;
      }
      return true;
    };
  };
  const std::uint32_t before = sleeper.rings();
  CHECK_FALSE(wait_for(sleeper, after_the_look([&] { peer.ticket().store(1); }), 0ms));
  CHECK(sleeper.rings() == before);
  CHECK(wait_for(sleeper, after_the_look([&] { peer.send(0, 1, bytes_of("x"), {}); })));
  CHECK(wait_for(sleeper, after_the_look([&] { sleeper.ring_own(); })));
}

TEST_CASE("inbox: no ring is missed, between threads and between processes",
          "[engine][collective][inbox]") {
  Inboxes inboxes(2);
  constexpr std::uint64_t kRounds = 20000;
  SECTION("threads") {
    auto other =
        std::async(std::launch::async, [&] { return play(*inboxes.ranks[1], 0, kRounds); });
    CHECK(play(*inboxes.ranks[0], 1, kRounds));
    CHECK(other.get());
  }
  SECTION("processes") {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(600);
      test::leave(play(*inboxes.ranks[1], 0, kRounds) ? 0 : 1);
    }
    CHECK(play(*inboxes.ranks[0], 1, kRounds));
    int status = -1;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

}  // namespace train::engine::shared_inbox_test
