#include "tests/engine/collective/tcp_fixture.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>

#include "engine/collective/tcp_transport.hpp"
#include "kernels/device/nccl.hpp"

namespace train::engine::tcp_transport_test {

using namespace std::chrono_literals;

namespace {

bool is_connected_tcp(int descriptor) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  sockaddr_storage peer = {};
  socklen_t peer_size = sizeof(peer);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
         protocol == IPPROTO_TCP &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0;
}

/// The descriptors of this process that are connected TCP sockets.
std::set<int> tcp_sockets() {
  std::set<int> sockets;
  std::error_code error;  // one that was closed meanwhile is none of them
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int descriptor = std::stoi(entry.path().filename().string());
    if (is_connected_tcp(descriptor)) {
      sockets.insert(descriptor);
    }
  }
  return sockets;
}

/// Two ranks that have to find each other within `limit`, and then wait as long as it takes. None:
/// they were too slow.
std::vector<ChannelTransports> connect_within(const TempDirectory& directory,
                                              std::chrono::milliseconds limit) {
  std::vector<std::future<Result<ChannelTransports>>> connecting;
  for (const int rank : {0, 1}) {
    connecting.push_back(std::async(std::launch::async, [&, rank] {
      TcpOptions options = options_of(rank, 2);
      options.timeout = limit;
      options.exchange_limit = {};
      const auto store = make_file_store(directory.path());
      return make_tcp(*store, options);
    }));
  }
  std::vector<ChannelTransports> world;
  for (auto& ended : connecting) {
    if (auto channels = ended.get()) {
      world.push_back(std::move(channels).value());
    }
  }
  return world.size() == connecting.size() ? std::move(world) : std::vector<ChannelTransports>{};
}

}  // namespace

TEST_CASE("tcp: every byte finds its rank", "[engine][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  const int world_size = GENERATE(2, 3, 4);
  const TempDirectory directory;
  auto world = connect_world(directory, world_size);
  CHECK(world[1][kReduce]->rank() == 1);
  CHECK(world[1][kReduce]->world_size() == world_size);
  const std::vector<test::SizeOf> sizes = {
      [](int, int) { return 0; },
      [](int, int) { return 1; },
      [](int, int) { return 4096; },
      [](int, int) { return 4097; },
      [](int, int) { return 1 << 20; },
      [](int from, int to) { return from == 1 ? 0 : from * 100000 + to * 3 + 1; },
      [](int from, int) { return from == 0 ? 70000 : 0; }};  // one rank to all
  std::int64_t command = 0;
  for (const test::SizeOf& size_of : sizes) {
    auto parcels = parcels_of(world_size, size_of);
    for (const std::string& text : exchange_all(world, parcels, command++)) {
      CHECK(text.empty());
    }
    for (const Parcel& parcel : parcels) {
      CHECK(parcel.whole());
    }
  }
}

TEST_CASE("tcp: more than one chunk, and one range for everybody",
          "[engine][.full][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  constexpr int kRanks = 3;
  const TempDirectory directory;
  auto world = connect_world(directory, kRanks);
  auto parcels = parcels_of(kRanks, large);
  for (const std::string& text : exchange_all(world, parcels, 0)) {
    CHECK(text.empty());
  }
  for (const Parcel& parcel : parcels) {
    CHECK(parcel.whole());
  }
  std::vector<std::vector<std::byte>> gathered(kRanks, std::vector<std::byte>(300000));
  std::vector<std::future<Status>> ends;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    std::span<std::byte> all(gathered[rank]);
    const std::span<std::byte> own = all.subspan(rank * 100000, 100000);
    std::fill(own.begin(), own.end(), static_cast<std::byte>(rank + 1));
    Transfer transfer;
    for (std::size_t peer = 0; peer < kRanks; ++peer) {
      transfer.send.emplace_back(own);
      transfer.receive.push_back(all.subspan(peer * 100000, 100000));
    }
    CHECK(transfer.sent_bytes(static_cast<int>(rank)) == 200000);
    ends.push_back(start(*world[rank][kReduce], identity_of(1), transfer));
  }
  for (std::future<Status>& end : ends) {
    CHECK(end_of(end).empty());
  }
  for (const std::vector<std::byte>& all : gathered) {
    CHECK(all == gathered[0]);
  }
  CHECK(gathered[0][299999] == std::byte{3});
}

TEST_CASE("tcp: a thousand exchanges keep their order, on two channels at once",
          "[engine][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  constexpr int kRanks = 3;
  constexpr std::size_t kExchanges = 1000;
  const TempDirectory directory;
  auto world = connect_world(directory, kRanks);
  std::vector<std::vector<Parcel>> parcels(kRanks);
  std::vector<std::vector<std::future<Status>>> ends(kRanks);
  for (std::size_t i = 0; i < kExchanges; ++i) {
    // Not every pair takes part in every exchange.
    const auto size_of = [i](int from, int to) {
      const auto sum = static_cast<std::size_t>(from + to);
      return (i + sum) % 3 == 0 ? std::size_t{0} : (i % 7) * 1000 + sum;
    };
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      parcels[rank].emplace_back(static_cast<int>(rank), kRanks, size_of, static_cast<int>(i));
    }
  }
  for (std::size_t i = 0; i < kExchanges; ++i) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const auto channel = i % 2 == 0 ? kReduce : kGather;
      ends[rank].push_back(start(*world[rank][channel], identity_of(static_cast<int>(i)),
                                 parcels[rank][i].transfer()));
    }
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    int good = 0;
    for (std::size_t i = 0; i < kExchanges; ++i) {
      const std::string text = end_of(ends[rank][i]);
      good += text.empty() && parcels[rank][i].whole() ? 1 : 0;
    }
    CHECK(good == kExchanges);
  }
}

TEST_CASE("tcp: two that differ fail both, with both names, and move nothing",
          "[engine][collective][tcp][EX-2]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  auto world = connect_world(directory, 3);
  const std::size_t bytes = GENERATE(8, 100000);
  auto parcels = parcels_of(3, [&](int, int) { return bytes; });
  CollectiveIdentity other = identity_of(7, 3);
  SECTION("index") { other = identity_of(7, 4); }
  SECTION("command") { other = identity_of(8, 3); }
  SECTION("hash") { other.hash = 0xdef; }
  SECTION("one is a whole exchange ahead") { other = identity_of(9, 0); }
  auto first = start(*world[0][kReduce], identity_of(7, 3), parcels[0].transfer());
  auto second = start(*world[1][kReduce], other, parcels[1].transfer());
  for (const std::string& text : {end_of(first), end_of(second)}) {
    CHECK_THAT(text, Catch::Contains("rank 0 is at " + to_string(identity_of(7, 3))));
    CHECK_THAT(text, Catch::Contains("rank 1 is at " + to_string(other)));
  }
  CHECK(parcels[0].untouched());
  CHECK(parcels[1].untouched());
  auto later = start(*world[0][kReduce], identity_of(8), parcels[0].transfer());
  CHECK_THAT(end_of(later), Catch::Contains("rank 1 is at"));
  // The third learns of it too, and the other channels go on.
  auto third = start(*world[2][kReduce], identity_of(7, 3), parcels[2].transfer());
  // What rank 1 had to say may lie there still.
  CHECK_THAT(end_of(third), Catch::Contains("lost rank") || Catch::Contains("rank 1 is at"));
  CHECK(parcels[2].untouched());
  auto fresh = parcels_of(3, [](int, int) { return 10; });
  std::vector<std::future<Status>> ends;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ends.push_back(start(*world[rank][kGather], identity_of(7), fresh[rank].transfer()));
  }
  for (std::future<Status>& end : ends) {
    CHECK(end_of(end).empty());
  }
}

TEST_CASE("tcp: ranges of different length are a difference", "[engine][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  auto world = connect_world(directory, 2);
  Parcel small(0, 2, [](int, int) { return 5000; });
  Parcel longer(1, 2, [](int, int) { return 5001; });
  auto first = start(*world[0][kReduce], identity_of(1), small.transfer());
  auto second = start(*world[1][kReduce], identity_of(1), longer.transfer());
  CHECK_THAT(end_of(first), Catch::Contains("5000 bytes") && Catch::Contains("5001 bytes"));
  CHECK_THAT(end_of(second), Catch::Contains("5000 bytes") && Catch::Contains("5001 bytes"));
  CHECK(small.untouched());
  CHECK(longer.untouched());
}

TEST_CASE("tcp: cancel ends what waits and reaches the peers", "[engine][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  auto world = connect_world(directory, 3);
  auto parcels = parcels_of(3, [](int, int) { return 5000; });
  ExchangeThread of_0(*world[0][kReduce]);
  ExchangeThread of_1(*world[1][kReduce]);
  auto first = start(*world[0][kReduce], identity_of(1), parcels[0].transfer());
  auto second = start(*world[1][kReduce], identity_of(1), parcels[1].transfer());
  auto queued = start(*world[1][kReduce], identity_of(2), parcels[1].transfer());
  REQUIRE(of_0.waits());
  REQUIRE(of_1.waits());
  world[0][kReduce]->cancel("a disk failed");
  CHECK_THAT(end_of(first), Catch::Contains("cancelled: a disk failed"));
  CHECK_THAT(end_of(second), Catch::Contains("lost rank 0"));
  CHECK_THAT(end_of(queued), Catch::Contains("lost rank 0"));
  auto later = start(*world[0][kReduce], identity_of(3), parcels[0].transfer());
  CHECK_THAT(end_of(later), Catch::Contains("a disk failed"));
  // One that has nothing under way tells its peers as well.
  world[2][kGather]->cancel("it is over");
  auto waiting = start(*world[0][kGather], identity_of(1), parcels[0].transfer());
  CHECK_THAT(end_of(waiting), Catch::Contains("lost rank 2"));
}

TEST_CASE("tcp: silence longer than the timeout names the rank", "[engine][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  auto world = connect_world(directory, 3, 1, 200ms, {0, 2});
  auto parcels = parcels_of(3, [](int from, int to) { return from == 1 || to == 1 ? 5000 : 0; });
  auto first = start(*world[0][kReduce], identity_of(4), parcels[0].transfer());
  auto third = start(*world[2][kReduce], identity_of(4), parcels[2].transfer());
  const std::string text = end_of(first);
  CHECK_THAT(text, Catch::Contains("waited 200 ms for rank 1 ") || Catch::Contains("lost rank 2"));
  CHECK_THAT(text + end_of(third), Catch::Contains("waited 200 ms for rank 1 "));
}

TEST_CASE("tcp: once connected, a rank that lives is waited for beyond the limit of connecting",
          "[engine][.full][collective][tcp]") {
  auto connect_limit = 50ms;
  // On one channel of each world the second rank comes late, on another it is lost.
  struct Waiting {
    std::unique_ptr<TempDirectory> directory;
    std::vector<ChannelTransports> world;
    std::vector<Parcel> parcels;
    std::future<Status> late, lost;
  };
  std::array<Waiting, 2> all;
  for (Waiting& one : all) {
    direct_reads = &one == &all[0];
    for (; one.world.empty(); connect_limit *= 2) {  // as long as the machine takes for it
      REQUIRE(connect_limit < test::hang_limit);
      one.directory = std::make_unique<TempDirectory>();
      one.world = connect_within(*one.directory, connect_limit);
    }
    one.parcels = parcels_of(2, [](int, int) { return 5000; });
    one.late = start(*one.world[0][kReduce], identity_of(4), one.parcels[0].transfer());
    one.lost = start(*one.world[0][kGather], identity_of(4), one.parcels[0].transfer());
  }
  const auto beyond = std::chrono::steady_clock::now() + connect_limit;  // twice the last
  for (Waiting& one : all) {
    CHECK(one.late.wait_until(beyond) == std::future_status::timeout);
    CHECK(one.lost.wait_until(beyond) == std::future_status::timeout);
    auto comes = start(*one.world[1][kReduce], identity_of(4), one.parcels[1].transfer());
    CHECK(end_of(one.late).empty());
    CHECK(end_of(comes).empty());
    one.world[1][kGather]->cancel("it is over");
    CHECK_THAT(end_of(one.lost), Catch::Contains("lost rank 1"));
  }
}

TEST_CASE("tcp: the kernel finds links that are cut, of every connection",
          "[engine][collective][tcp]") {
  const TempDirectory directory;
  const auto before = tcp_sockets();
  const auto world = connect_world(directory, 2);
  int connections = 0;
  for (const int socket : tcp_sockets()) {
    if (before.contains(socket)) {
      continue;
    }
    ++connections;
    int alive = 0;
    int limit_ms = 0;
    socklen_t size = sizeof(int);
    REQUIRE(::getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &alive, &size) == 0);
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &size) == 0);
    CHECK(alive == 1);
    CHECK(limit_ms == 120'000);
    int idle_s = 0;
    int between_s = 0;
    int probes = 0;
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &size) == 0);
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, &size) == 0);
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, &size) == 0);
    CHECK(probes >= 2);  // one that is lost says nothing
    CHECK((idle_s + probes * between_s) * 1000 <= limit_ms);
  }
  CHECK(connections == 2 * static_cast<int>(kChannelCount));  // both ends are in this process
}

TEST_CASE("tcp: destroyed with exchanges under way, it ends them",
          "[engine][.full][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  auto world = connect_world(directory, 2);
  auto parcels = parcels_of(2, large);
  auto first = start(*world[0][kReduce], identity_of(1), parcels[0].transfer());
  auto queued = start(*world[0][kReduce], identity_of(2), parcels[0].transfer());
  SECTION("in the middle of the data") {
    const Transfer receives = parcels[1].transfer();
    auto second = start(*world[1][kReduce], identity_of(1), receives);
    // Nothing has to be there, or something of this chunk.
    if (const int chunk = GENERATE(0, 1, 3); chunk > 0) {
      const std::byte& first_byte = receives.receive[0][(chunk - 1) * (std::size_t{16} << 20)];
      REQUIRE(test::comes_true([&] { return has_come(first_byte); }));
    }
    world[0][kReduce].reset();
    // It may have been quicker.
    CHECK_THAT(end_of(second), Catch::Equals("") || Catch::Contains("lost rank 0"));
    CHECK_THAT(end_of(first, 0ms), Catch::Equals("") || Catch::Contains("closed"));
  }
  SECTION("before the other comes") {
    world[0][kReduce].reset();
    CHECK_THAT(end_of(first, 0ms), Catch::Contains("closed"));
    auto second = start(*world[1][kReduce], identity_of(1), parcels[1].transfer());
    CHECK_THAT(end_of(second), Catch::Contains("lost rank 0"));
  }
  CHECK_THAT(end_of(queued, 0ms), Catch::Contains("closed"));
}

TEST_CASE("tcp: the last exchange is whole, or a failure, when one side leaves at once",
          "[engine][collective][tcp]") {
  // Whoever closes a socket before it has read all of it resets the connection, and what the other
  // side has not read is lost. The ranks of a run leave when all have finished (EX-1).
  direct_reads = GENERATE(true, false);
  int whole = 0;
  for (int round = 0; round < 10 || (whole == 0 && round < 200); ++round) {
    const TempDirectory directory;
    auto world = connect_world(directory, 2);
    auto parcels = parcels_of(2, [](int from, int) { return from == 0 ? 3000000 : 0; });
    auto second = start(*world[1][kReduce], identity_of(1), parcels[1].transfer());
    auto first = start(*world[0][kReduce], identity_of(1), parcels[0].transfer());
    CHECK_THAT(end_of(first), Catch::Equals(""));
    world[0][kReduce].reset();
    const std::string end = end_of(second);
    CHECK_THAT(end, Catch::Equals("") || Catch::Contains("lost rank 0"));
    if (end.empty()) {
      CHECK(parcels[1].whole());
      ++whole;
    }
  }
  CHECK(whole > 0);
}

TEST_CASE("tcp: a rank that has had its share may leave while others go on",
          "[engine][.full][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  bool others_busy = false;
  for (int round = 0; !others_busy && round < 100; ++round) {
    const TempDirectory directory;
    auto world = connect_world(directory, 3);
    // Rank 0 has little to do; 1 and 2 are busy with each other long after it has left.
    auto parcels = parcels_of(
        3, [](int from, int to) { return from == 0 || to == 0 ? 100U : large(from, to); });
    std::vector<std::future<Status>> ends;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      ends.push_back(start(*world[rank][kReduce], identity_of(1), parcels[rank].transfer()));
    }
    CHECK(end_of(ends[0]).empty());
    others_busy = ends[1].wait_for(0ms) == std::future_status::timeout;
    world[0][kReduce].reset();
    CHECK(end_of(ends[1]).empty());
    CHECK(end_of(ends[2]).empty());
    // The two go on without it, as long as they do not need it.
    auto rest = parcels_of(3, [](int from, int to) { return from == 0 || to == 0 ? 0 : 5000; });
    auto second = start(*world[1][kReduce], identity_of(2), rest[1].transfer());
    auto third = start(*world[2][kReduce], identity_of(2), rest[2].transfer());
    CHECK(end_of(second).empty());
    CHECK(end_of(third).empty());
    auto needs_it = start(*world[1][kReduce], identity_of(3), parcels[1].transfer());
    CHECK_THAT(end_of(needs_it), Catch::Contains("lost rank 0"));
    for (const std::vector<Parcel>* all : {&parcels, &rest}) {
      CHECK((*all)[1].whole());
      CHECK((*all)[2].whole());
    }
  }
  CHECK(others_busy);
}

TEST_CASE("tcp: an end that throws fails the channel, not the process",
          "[engine][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  const TempDirectory directory;
  auto world = connect_world(directory, 2);
  auto parcels = parcels_of(2, [](int, int) { return 0; });
  world[0][kReduce]->exchange(identity_of(1), parcels[0].transfer(),
                              [](const Status&) { throw std::runtime_error("out of luck"); });
  auto later = start(*world[0][kReduce], identity_of(2), parcels[0].transfer());
  CHECK_THAT(end_of(later), Catch::Contains("out of luck"));
}

TEST_CASE("tcp: a rank that does not appear is named", "[engine][collective][tcp]") {
  const TempDirectory directory;
  const auto store = make_file_store(directory.path());
  TcpOptions options = options_of(0, 2);
  options.timeout = 100ms;
  const auto channels = make_tcp(*store, options);
  REQUIRE_FALSE(channels.ok());
  CHECK(channels.error().kind == ErrorKind::failure);
  CHECK_THAT(channels.error().message, Catch::Contains("rank 1 has not appeared"));
}

TEST_CASE("tcp: without the devices' library every rank's connecting fails, and says why",
          "[engine][collective][tcp]") {
  if (kernels::nccl_absence().empty()) {
    return;  // Here it is: tests/cuda_emulation joins devices.
  }
  const TempDirectory directory;
  std::vector<std::future<Result<ChannelTransports>>> connecting;
  for (const int rank : {0, 1}) {
    connecting.push_back(std::async(std::launch::async, [&, rank] {
      const auto store = make_file_store(directory.path());
      if (rank == 1) {  // The id that rank 0 would make, or rank 1 waits for it.
        for (const char* const channel : {"reduce", "gather"}) {
          const kernels::NcclId id{};
          const Status set = store->set(fmt::format("g1.{}.nccl", channel), {id.begin(), id.end()});
          if (!set) {
            return Result<ChannelTransports>(set.error());
          }
        }
      }
      TcpOptions options = options_of(rank, 2);
      options.nccl = true;
      return make_tcp(*store, options);
    }));
  }
  int said = 0;
  for (const int rank : {0, 1}) {
    const auto channels = connecting[static_cast<std::size_t>(rank)].get();
    REQUIRE_FALSE(channels.ok());
    INFO(channels.error().message);
    CHECK(channels.error().kind == ErrorKind::failure);
    CHECK_THAT(channels.error().message,
               Catch::StartsWith(fmt::format("generation 1: rank {} cannot connect", rank)));
    said += channels.error().message.ends_with(": " + kernels::nccl_absence()) ? 1 : 0;
  }
  CHECK(said >= 1);  // The other one may find that rank gone.
}

TEST_CASE("tcp: an interface that is not there is the user's mistake",
          "[engine][collective][tcp]") {
  const TempDirectory directory;
  const auto store = make_file_store(directory.path());
  TcpOptions options = options_of(0, 2);
  options.interface = "nowhere7";
  const auto channels = make_tcp(*store, options);
  REQUIRE_FALSE(channels.ok());
  CHECK(channels.error().kind == ErrorKind::user);
  CHECK_THAT(channels.error().message,
             Catch::Contains("parallel.interface") && Catch::Contains("nowhere7"));
  options.interface = "";
  options.world_size = 1;
  CHECK(make_tcp(*store, options).ok());
}

}  // namespace train::engine::tcp_transport_test
