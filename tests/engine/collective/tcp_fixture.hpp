#pragma once

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/collective/tcp_transport.hpp"
#include "tests/engine/collective/exchange_fixture.hpp"
#include "tests/support/disks/file_store.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/thread_sleep.hpp"
#include "tests/support/processes/leave.hpp"

// Ranks that are joined by TCP: in this process, and in processes of their own.
namespace train::engine {

using test::end_of;
using test::identity_of;
using test::make_file_store;
using test::Parcel;
using test::start;
using test::TempDirectory;

inline constexpr auto kReduce = static_cast<std::size_t>(Channel::reduce);
inline constexpr auto kGather = static_cast<std::size_t>(Channel::gather);

/// Whether the worlds of this test read each other's memory.
inline bool direct_reads = true;

inline TcpOptions options_of(int rank, int world_size, std::uint64_t generation = 1) {
  TcpOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.generation = generation;
  options.timeout = test::beyond_hang_limit;  // what ends sooner has not waited for silence
  options.exchange_limit = options.timeout;   // a test that would hang ends
  options.direct = direct_reads;
  return options;
}

/// All ranks of a world, in this process. `silence`: how long an exchange of the ranks of
/// `impatient` waits for anything to arrive.
inline std::vector<ChannelTransports> connect_world(
    const TempDirectory& directory, int world_size, std::uint64_t generation = 1,
    std::chrono::milliseconds silence = test::beyond_hang_limit,
    const std::vector<int>& impatient = {0}) {
  std::vector<std::future<Result<ChannelTransports>>> connecting;
  for (int rank = 0; rank < world_size; ++rank) {
    connecting.push_back(std::async(std::launch::async, [&, rank] {
      const auto store = make_file_store(directory.path());
      TcpOptions options = options_of(rank, world_size, generation);
      if (std::find(impatient.begin(), impatient.end(), rank) != impatient.end()) {
        options.exchange_limit = silence;
      }
      return make_tcp(*store, options);
    }));
  }
  std::vector<ChannelTransports> world;
  for (std::future<Result<ChannelTransports>>& ended : connecting) {
    Result<ChannelTransports> channels = ended.get();
    REQUIRE(test::text_of(channels.ok() ? Status() : Status(channels.error())).empty());
    world.push_back(std::move(channels).value());
  }
  return world;
}

inline std::vector<Parcel> parcels_of(int world_size, const test::SizeOf& size_of) {
  std::vector<Parcel> parcels;
  for (int rank = 0; rank < world_size; ++rank) {
    parcels.emplace_back(rank, world_size, size_of);
  }
  return parcels;
}

inline std::vector<std::string> exchange_all(std::vector<ChannelTransports>& world,
                                             std::vector<Parcel>& parcels, std::int64_t command) {
  std::vector<std::future<Status>> ends;
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    ends.push_back(start(*world[rank][kReduce], identity_of(command), parcels[rank].transfer()));
  }
  std::vector<std::string> texts;
  for (std::future<Status>& end : ends) {
    texts.push_back(end_of(end));
  }
  return texts;
}

/// The thread that runs a channel's exchanges. What it is given after this has been constructed is
/// known to wait for others when waits() returns.
class ExchangeThread {
 public:
  explicit ExchangeThread(Collectives& channel) {
    Transfer nothing;
    nothing.send.resize(static_cast<std::size_t>(channel.world_size()));
    nothing.receive.resize(nothing.send.size());
    const auto thread = std::make_shared<std::promise<pid_t>>();
    channel.exchange(identity_of(0), nothing,
                     [thread](const Status&) { thread->set_value(::gettid()); });
    thread_ = thread->get_future().get();
    std::ignore = waits();
  }

  /// Waits until the thread has gone to sleep once more. False: it does not.
  [[nodiscard]] bool waits() {
    const bool asleep = test::falls_asleep(thread_, last_sleep_);
    last_sleep_ = test::sleep_of(thread_).value_or(last_sleep_);
    return asleep;
  }

 private:
  pid_t thread_ = 0;
  long last_sleep_ = -1;
};

/// Whether a byte of what a parcel receives is there. Whoever brings it may be at work.
[[gnu::no_sanitize_thread, gnu::noinline]] inline bool has_come(const std::byte& place) {
  return *const_cast<const volatile std::byte*>(&place) != Parcel::kUntouched;
}

/// Ranks as processes; each leaves the text its body returns in a file. Killed at the end.
class Processes {
 public:
  using Body = std::function<std::string(int rank, RendezvousStore& store)>;

  Processes(const TempDirectory& directory, int count, const Body& body) : directory_(directory) {
    for (int rank = 0; rank < count; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(static_cast<unsigned>(test::beyond_hang_limit.count()));
        const auto store = make_file_store(directory.path());
        note(fmt::format("report{}", rank), body(rank, *store));
        test::leave(0);
      }
      REQUIRE(child > 0);
      pids_.push_back(child);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
    }
  }

  void note(const std::string& name, const std::string& text) const {
    const auto store = make_file_store(directory_.path());
    if (!store->set(name, {text.begin(), text.end()})) {
      test::leave(1);
    }
  }
  [[nodiscard]] std::string await(const std::string& name) const {
    const auto found = make_file_store(directory_.path())->get(name, test::hang_limit);
    REQUIRE(found.ok());
    return {found->begin(), found->end()};
  }
  /// What `rank` had to say; its process has ended by itself.
  [[nodiscard]] std::string report(int rank) {
    std::string text = await(fmt::format("report{}", rank));
    int status = -1;
    pid_t& pid = pids_[static_cast<std::size_t>(rank)];
    CHECK(::waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
    pid = -1;
    return text;
  }
  void send(int rank, int signal) const {
    REQUIRE(::kill(pids_[static_cast<std::size_t>(rank)], signal) == 0);
  }

 private:
  const TempDirectory& directory_;
  std::vector<pid_t> pids_;
};

inline void leave_note(const TempDirectory& directory, const std::string& name) {
  const auto store = make_file_store(directory.path());
  if (!store->set(name, {})) {
    test::leave(1);
  }
}

/// Three chunks, to all others.
inline std::size_t large(int from, int to) { return from == to ? 9 : std::size_t{34} << 20; }

}  // namespace train::engine
