#include "tests/engine/collective/tcp_fixture.hpp"

#include <catch2/catch.hpp>

namespace train::engine::tcp_process_test {

TEST_CASE("tcp: processes exchange, with the interface named", "[engine][collective][tcp][fork]") {
  direct_reads = GENERATE(true, false);
  const int world_size = GENERATE(2, 3, 4);
  const TempDirectory directory;
  Processes processes(directory, world_size, [&](int rank, RendezvousStore& store) {
    TcpOptions options = options_of(rank, world_size);
    options.interface = "lo";
    auto channels = make_tcp(store, options);
    if (!channels) {
      return channels.error().message;
    }
    for (int i = 0; i < 50; ++i) {
      const auto size_of = [i](int from, int to) { return (from * 10 + to) * i * i; };
      Parcel parcel(rank, world_size, size_of, i);
      auto end = start(*(*channels)[kReduce], identity_of(i), parcel.transfer());
      if (const std::string text = end_of(end); !text.empty() || !parcel.whole()) {
        return fmt::format("exchange {}: {}", i, text);
      }
    }
    return std::string("good");
  });
  for (int rank = 0; rank < world_size; ++rank) {
    CHECK(processes.report(rank) == "good");
  }
}

TEST_CASE("tcp: kill -9 of one of three fails both others at once",
          "[engine][collective][tcp][fork]") {
  direct_reads = GENERATE(true, false);
  const bool in_data = GENERATE(false, true);
  const TempDirectory directory;
  Processes processes(directory, 3, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, options_of(rank, 3));
    if (!channels) {
      return channels.error().message;
    }
    if (rank == 2 && !in_data) {
      leave_note(directory, "ready2");
      ::pause();
    }
    // Large ones, one after the other, are still under way when the signal comes.
    std::string text;
    for (int i = 0; text.empty() && i < 1000; ++i) {
      Parcel parcel(rank, 3, [](int, int) { return std::size_t{4} << 20; });
      auto end = start(*(*channels)[kReduce], identity_of(i), parcel.transfer());
      if (i == 2 || !in_data) {
        leave_note(directory, fmt::format("ready{}", rank));
      }
      text = end_of(end);
    }
    return text;
  });
  for (int rank = 0; rank < 3; ++rank) {
    std::ignore = processes.await(fmt::format("ready{}", rank));
  }
  processes.send(2, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(processes.report(rank), Catch::Contains("lost rank"));
  }
}

TEST_CASE("tcp: kill -9 in the middle of a range that is read fails the readers at once",
          "[engine][.full][collective][tcp][fork]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  Processes processes(directory, 3, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, options_of(rank, 3));
    if (!channels) {
      return channels.error().message;
    }
    Parcel parcel(rank, 3,
                  [](int from, int to) { return from == 2 ? large(from, to) : std::size_t{0}; });
    std::string text;
    for (int i = 0; text.empty() && i < 10000; ++i) {
      auto end = start(*(*channels)[kReduce], identity_of(i), parcel.transfer());
      if (i == 1) {
        leave_note(directory, fmt::format("ready{}", rank));
      }
      text = end_of(end);
    }
    return text;
  });
  for (int rank = 0; rank < 3; ++rank) {
    std::ignore = processes.await(fmt::format("ready{}", rank));
  }
  processes.send(2, SIGKILL);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK_THAT(processes.report(rank), Catch::Contains("lost rank"));
  }
}

TEST_CASE("tcp: a stopped peer does not hold up cancel nor the destructor",
          "[engine][.full][collective][tcp][fork]") {
  direct_reads = GENERATE(true, false);
  const bool in_data = GENERATE(false, true);
  const TempDirectory directory;
  Processes processes(directory, 2, [&](int rank, RendezvousStore& store) {
    auto channels = make_tcp(store, options_of(rank, 2));
    if (!channels) {
      return channels.error().message;
    }
    if (rank == 1 && !in_data) {
      leave_note(directory, "ready");
      ::pause();
    }
    Parcel parcel(rank, 2, large);
    std::string text;
    if (rank == 1) {
      for (int i = 0; text.empty(); ++i) {
        auto end = start(*(*channels)[kReduce], identity_of(i), parcel.transfer());
        if (i == 1) {
          leave_note(directory, "ready");
        }
        text = end_of(end);
      }
      return text;
    }
    const auto cancelling = std::async(std::launch::async, [&] {
      std::ignore = store.get("stopped", test::hang_limit);
      (*channels)[kReduce]->cancel("enough");
    });
    for (int i = 0; text.empty(); ++i) {
      auto end = start(*(*channels)[kReduce], identity_of(i), parcel.transfer());
      text = end_of(end);
    }
    cancelling.wait();
    for (auto& channel : *channels) {
      channel.reset();
    }
    return text + " and closed";
  });
  std::ignore = processes.await("ready");
  processes.send(1, SIGSTOP);
  processes.note("stopped", "");
  CHECK_THAT(processes.report(0),
             Catch::Contains("cancelled: enough") && Catch::EndsWith(" and closed"));
}

TEST_CASE("tcp: a second generation after the first died, in the same process",
          "[engine][collective][tcp][fork]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  // Rank 2 of generation 1 dies; the others go on with process 3 in its place.
  Processes processes(directory, 4, [&](int process, RendezvousStore& store) {
    const int rank = process == 3 ? 2 : process;
    std::string text;
    for (std::uint64_t generation = process == 3 ? 2 : 1; generation <= 2; ++generation) {
      auto channels = make_tcp(store, options_of(rank, 3, generation));
      if (!channels) {
        text += "failed;";  // the death may have come before it was through
        continue;
      }
      if (process == 2) {
        ::kill(::getpid(), SIGKILL);
      }
      CollectiveIdentity identity = identity_of(0);
      identity.generation = generation;
      Parcel parcel(rank, 3, [](int from, int to) { return 100000 + from * 10 + to; });
      auto end = start(*(*channels)[kReduce], identity, parcel.transfer());
      const std::string ended = end_of(end);
      text += ended.empty() && parcel.whole() ? "good;" : "failed;";
    }
    return text;
  });
  CHECK(processes.report(0) == "failed;good;");
  CHECK(processes.report(1) == "failed;good;");
  CHECK(processes.report(3) == "good;");
}

}  // namespace train::engine::tcp_process_test
