#include <catch2/catch.hpp>
#include <random>
#include <tuple>

#include "tests/engine/collective/tcp_fixture.hpp"

// Ranks of one machine and others, in one world: a rank that takes no part in direct reads is as
// far away as one on another machine.
namespace train::engine::tcp_local_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSizes[] = {0,    0,    1,    17,   4000,  4095,
                                  4096, 4097, 5000, 8192, 70001, std::size_t{1} << 20};

/// The same for all ranks: the bytes of exchange `i` from one rank to another.
test::SizeOf sizes_of(int i) {
  return [i](int from, int to) {
    std::seed_seq seed{i, from, to};
    std::mt19937 random(seed);
    const std::size_t size = kSizes[random() % std::size(kSizes)];
    return size == std::size_t{1} << 20 && random() % 4 != 0 ? std::size_t{3} : size;
  };
}

/// Runs exchanges one after the other with two under way. "": all came whole.
std::string exchange_many(Collectives& channel, int rank, int world_size, int count) {
  std::optional<Parcel> before;
  std::future<Status> before_end;
  for (int i = 0; i <= count; ++i) {
    std::optional<Parcel> next;
    std::future<Status> end;
    if (i < count) {
      next.emplace(rank, world_size, sizes_of(i), i);
      end = start(channel, identity_of(i), next->transfer());
    }
    if (before) {
      const std::string text = end_of(before_end);
      if (!text.empty() || !before->whole()) {
        return fmt::format("exchange {}: {}", i - 1, text.empty() ? "other bytes" : text);
      }
    }
    before = std::move(next);
    before_end = std::move(end);
  }
  return {};
}

/// A world in which the ranks of `far` reach nobody but over the connection.
std::vector<ChannelTransports> connect_mixed(const TempDirectory& directory, int world_size,
                                             const std::vector<int>& far) {
  std::vector<std::future<Result<ChannelTransports>>> connecting;
  for (int rank = 0; rank < world_size; ++rank) {
    connecting.push_back(std::async(std::launch::async, [&, rank] {
      const auto store = make_file_store(directory.path());
      TcpOptions options = options_of(rank, world_size);
      options.direct = std::find(far.begin(), far.end(), rank) == far.end();
      return make_tcp(*store, options);
    }));
  }
  std::vector<ChannelTransports> world;
  for (auto& connected : connecting) {
    Result<ChannelTransports> channels = connected.get();
    REQUIRE(channels.ok());
    world.push_back(std::move(channels).value());
  }
  return world;
}

/// Rank 2 cannot read what rank 0 has for it, because it waits for rank 1: rank 0 waits for taken.
Parcel held_up(int rank) {
  return Parcel(rank, 3, [](int from, int to) {
    return from == 0 && to == 2 ? 50000 : from == 1 && to == 2 ? 10 : 0;
  });
}

}  // namespace

TEST_CASE("tcp: random exchanges, some ranks near and some far",
          "[engine][.full][collective][tcp]") {
  using Case = std::tuple<int, std::vector<int>>;
  const auto [world_size, far] =
      GENERATE(table<int, std::vector<int>>({Case{2, {}}, Case{2, {1}}, Case{3, {}}, Case{3, {0}},
                                             Case{4, {3}}, Case{5, {}}, Case{5, {1, 4}}}));
  const int count = world_size == 2 ? 1500 : 400;
  CAPTURE(world_size, far);
  const TempDirectory directory;
  auto world = connect_mixed(directory, world_size, far);
  std::vector<std::future<std::string>> ends;
  for (int rank = 0; rank < world_size; ++rank) {
    ends.push_back(std::async(std::launch::async, [&, rank] {
      Collectives& channel = *world[static_cast<std::size_t>(rank)][kReduce];
      return exchange_many(channel, rank, world_size, count);
    }));
  }
  for (std::future<std::string>& end : ends) {
    CHECK(end.get().empty());
  }
}

TEST_CASE("tcp: random exchanges of processes", "[engine][.full][collective][tcp][fork]") {
  direct_reads = true;
  const int world_size = GENERATE(2, 4);
  const TempDirectory directory;
  Processes processes(directory, world_size, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, options_of(rank, world_size));
    if (!channels) {
      return channels.error().message;
    }
    return "end " + exchange_many(*(*channels)[kReduce], rank, world_size, 1500);
  });
  for (int rank = 0; rank < world_size; ++rank) {
    CHECK(processes.report(rank) == "end ");
  }
}

TEST_CASE("tcp: kill -9 of a rank that has not taken fails the sender at once",
          "[engine][collective][tcp][fork]") {
  direct_reads = true;
  const TempDirectory directory;
  Processes processes(directory, 3, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, options_of(rank, 3));
    if (!channels) {
      return channels.error().message;
    }
    if (rank == 1) {
      leave_note(directory, "ready1");
      ::pause();
    }
    Parcel parcel = held_up(rank);
    ExchangeThread thread(*(*channels)[kReduce]);
    auto end = start(*(*channels)[kReduce], identity_of(1), parcel.transfer());
    if (!thread.waits()) {
      return std::string("waits for nobody");
    }
    leave_note(directory, fmt::format("ready{}", rank));
    return end_of(end);
  });
  for (int rank = 0; rank < 3; ++rank) {
    std::ignore = processes.await(fmt::format("ready{}", rank));
  }
  processes.send(2, SIGKILL);
  CHECK_THAT(processes.report(0), Catch::Contains("lost rank 2"));
}

TEST_CASE("tcp: cancel ends the wait for a header and for taken at once",
          "[engine][collective][tcp]") {
  const bool in_data = GENERATE(false, true);
  direct_reads = true;
  const TempDirectory directory;
  auto world = connect_world(directory, 3);
  Parcel first = held_up(0);
  Parcel third = held_up(2);
  ExchangeThread of_0(*world[0][kReduce]);
  ExchangeThread of_2(*world[2][kReduce]);
  std::future<Status> other;
  if (in_data) {
    other = start(*world[2][kReduce], identity_of(1), third.transfer());
    REQUIRE(of_2.waits());
  }
  auto end = start(*world[0][kReduce], identity_of(1), first.transfer());
  REQUIRE(of_0.waits());
  CHECK(end.wait_for(0ms) == std::future_status::timeout);
  world[0][kReduce]->cancel("enough");
  CHECK_THAT(end_of(end), Catch::Contains("cancelled: enough"));
  if (in_data) {
    CHECK_THAT(end_of(other), Catch::Contains("lost rank 0"));
    CHECK(third.untouched());
  }
}

TEST_CASE("tcp: silence of a near rank names it, before the header and after",
          "[engine][.full][collective][tcp]") {
  const bool in_data = GENERATE(false, true);
  direct_reads = true;
  const TempDirectory directory;
  // Of rank 0 alone: with the same for all, whether 0 gives up 2 or 2 gives up 1 first is chance.
  auto world = connect_world(directory, 3, 1, 200ms, {0});
  Parcel first = held_up(0);
  Parcel third = held_up(2);
  std::future<Status> other;
  if (in_data) {
    ExchangeThread of_2(*world[2][kReduce]);
    other = start(*world[2][kReduce], identity_of(1), third.transfer());
    REQUIRE(of_2.waits());  // Its header has gone.
  }
  auto end = start(*world[0][kReduce], identity_of(1), first.transfer());
  if (in_data) {
    CHECK_THAT(end_of(end), Catch::Contains("waited 200 ms for rank 2 to take its data"));
    CHECK_THAT(end_of(other), Catch::Contains("lost rank 0"));
  } else {
    CHECK_THAT(end_of(end), Catch::Contains("waited 200 ms for rank 2 to begin it"));
  }
}

TEST_CASE("tcp: a near rank that leaves disturbs no wait but one for itself",
          "[engine][collective][tcp]") {
  direct_reads = true;
  const TempDirectory directory;
  auto world = connect_world(directory, 3);
  const auto only = [](int a, int b) {
    return [=](int from, int to) {
      return (from == a && to == b) || (from == b && to == a) ? 6000 : 0;
    };
  };
  Parcel of_0(0, 3, only(0, 1));
  Parcel of_1(1, 3, only(0, 1));
  ExchangeThread thread(*world[0][kReduce]);
  auto waits = start(*world[0][kReduce], identity_of(1), of_0.transfer());
  REQUIRE(thread.waits());
  world[2][kReduce].reset();
  REQUIRE(thread.waits());  // It has been woken, has looked, and sleeps again.
  CHECK(waits.wait_for(0ms) == std::future_status::timeout);
  auto comes = start(*world[1][kReduce], identity_of(1), of_1.transfer());
  CHECK(end_of(waits).empty());
  CHECK(end_of(comes).empty());
  CHECK(of_0.whole());
  CHECK(of_1.whole());
  Parcel needs_2(0, 3, only(0, 2));
  auto fails = start(*world[0][kReduce], identity_of(2), needs_2.transfer());
  CHECK_THAT(end_of(fails), Catch::Contains("lost rank 2"));
}

TEST_CASE("tcp: near or far, two that differ fail with both names", "[engine][collective][tcp]") {
  const int far = GENERATE(0, 1, 2);
  const TempDirectory directory;
  auto world = connect_mixed(directory, 3, {far});
  auto parcels = parcels_of(3, [](int, int) { return 100000; });
  std::vector<std::future<Status>> ends;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ends.push_back(
        start(*world[rank][kReduce], identity_of(rank == 1 ? 8 : 7), parcels[rank].transfer()));
  }
  int named = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string text = end_of(ends[rank]);
    // Two learn of the difference; a third may hear first that one of them has gone.
    CHECK_THAT(text, Catch::Contains("rank 1 is at") || Catch::Contains("lost rank"));
    named += text.find("rank 1 is at") != std::string::npos ? 1 : 0;
    CHECK(parcels[rank].untouched());
  }
  CHECK(named >= 1);
}

}  // namespace train::engine::tcp_local_test
