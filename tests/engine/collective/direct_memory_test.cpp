#include "engine/collective/direct_memory.hpp"

#include <sys/mman.h>
#include <sys/uio.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/engine/collective/tcp_fixture.hpp"
#include "tests/support/processes/leave.hpp"

namespace train::engine::direct_memory_test {
namespace {

constexpr std::size_t kBytes = std::size_t{40} << 20;  // more than two chunks

/// Whether the kernel lets a process read memory so, at all: a container may forbid the call.
bool kernel_reads() {
  char from = 1;
  char to = 0;
  const iovec remote = {&from, 1};
  const iovec local = {&to, 1};
  if (::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1) {
    return true;
  }
  WARN("skipped: direct reads: process_vm_readv is not permitted here");
  return false;
}

}  // namespace

TEST_CASE("tcp: a range is read while its offer holds, and not after",
          "[engine][collective][tcp]") {
  if (!kernel_reads()) {
    return;
  }
  const std::vector<std::byte> sent(kBytes, std::byte{5});
  std::vector<std::byte> received(kBytes);
  std::atomic<std::uint64_t> ticket{0};
  DirectMemory direct;
  direct.set(ticket, {nullptr, &ticket}, {0, ::getpid()});
  const auto go_on = [] { return false; };
  direct.begin();
  const DirectOffer offer = direct.offer(sent);
  CHECK(direct.read(1, offer, received, go_on) == std::nullopt);
  CHECK(received == sent);
  CHECK(direct.read(1, offer, received, [] { return true; }) == "stopped");

  SECTION("taken back") { direct.revoke(); }
  SECTION("of an exchange that is over") { direct.begin(); }
  CHECK(direct.read(1, offer, received, go_on) == "lost rank 1 (it has given up)");
}

TEST_CASE("tcp: memory of a process that is gone is a lost rank", "[engine][collective][tcp]") {
  if (!kernel_reads()) {
    return;
  }
  const pid_t child = ::fork();
  if (child == 0) {
    test::leave(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const std::vector<std::byte> sent(5000);
  std::vector<std::byte> received(5000);
  std::atomic<std::uint64_t> ticket{0};
  DirectMemory direct;
  direct.set(ticket, {nullptr, &ticket}, {0, child});
  direct.begin();
  const auto why = direct.read(1, direct.offer(sent), received, [] { return false; });
  REQUIRE(why.has_value());
  CHECK_THAT(*why, Catch::Contains("lost rank 1 (No such process)"));
}

// Also the proof that ranges do go this way: nothing else looks at the memory of the sender so.
TEST_CASE("tcp: a range that cannot be read fails both, and does not go another way",
          "[engine][collective][tcp]") {
  if (!kernel_reads()) {
    return;
  }
  direct_reads = true;
  const TempDirectory directory;
  auto world = connect_world(directory, 2);
  void* pages = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(pages != MAP_FAILED);
  std::vector<std::byte> received(kBytes);
  Transfer first;
  first.send = {{}, {static_cast<const std::byte*>(pages), kBytes}};
  first.receive = {{}, {}};
  Transfer second;
  second.send = {{}, {}};
  second.receive = {received, {}};
  auto sender = start(*world[0][kReduce], identity_of(1), first);
  auto reader = start(*world[1][kReduce], identity_of(1), second);
  CHECK_THAT(end_of(reader), Catch::Contains("lost rank 0 (Bad address)"));
  CHECK_THAT(end_of(sender), Catch::Contains("lost rank 1"));
  ::munmap(pages, kBytes);
}

TEST_CASE("tcp: one that takes no part in direct reads gets and gives the same bytes",
          "[engine][collective][tcp]") {
  const int without = GENERATE(0, 1, 2);
  const TempDirectory directory;
  std::vector<std::future<Result<ChannelTransports>>> connecting;
  for (int rank = 0; rank < 3; ++rank) {
    connecting.push_back(std::async(std::launch::async, [&, rank] {
      const auto store = make_file_store(directory.path());
      TcpOptions options = options_of(rank, 3);
      options.direct = rank != without;
      return make_tcp(*store, options);
    }));
  }
  std::vector<ChannelTransports> world;
  for (auto& connected : connecting) {
    Result<ChannelTransports> channels = connected.get();
    REQUIRE(channels.ok());
    world.push_back(std::move(channels).value());
  }
  const auto sizes = [](int from, int to) {
    return from == to ? std::size_t{9} : std::size_t{3000000} * static_cast<std::size_t>(from + to);
  };
  auto parcels = parcels_of(3, sizes);
  for (const std::string& text : exchange_all(world, parcels, 1)) {
    CHECK(text.empty());
  }
  for (const Parcel& parcel : parcels) {
    CHECK(parcel.whole());
  }
}

TEST_CASE("tcp: a range whose sender gives up is whole or a failure, never something else",
          "[engine][.full][collective][tcp]") {
  direct_reads = GENERATE(true, false);
  // It gives up when the first bytes are there, or so many, which the reader may outrun: until some
  // have come when it fails, and others have not.
  int broken_off = 0;
  for (int round = 0; round < 4 || (broken_off == 0 && round < 200); ++round) {
    const TempDirectory directory;
    auto world = connect_world(directory, 2);
    std::vector<std::byte> sent(kBytes, std::byte{5});
    std::vector<std::byte> received(kBytes, Parcel::kUntouched);
    Transfer first;
    first.send = {{}, sent};
    first.receive = {{}, {}};
    Transfer second;
    second.send = {{}, {}};
    second.receive = {received, {}};
    std::promise<void> let_go;
    // What a sender that failed does with its memory is its own business.
    world[0][kReduce]->exchange(identity_of(1), first, [&](const Status& status) {
      if (!status.ok()) {
        std::fill(sent.begin(), sent.end(), std::byte{6});
      }
      let_go.set_value();
    });
    auto reader = start(*world[1][kReduce], identity_of(1), second);
    const std::byte& awaited = received[kBytes / 4 * static_cast<std::size_t>(round % 4)];
    REQUIRE(test::comes_true([&] { return has_come(awaited); }));
    world[0][kReduce]->cancel("enough");
    const std::string text = end_of(reader);
    if (text.empty()) {
      CHECK(std::all_of(received.begin(), received.end(),
                        [](std::byte byte) { return byte == std::byte{5}; }));
    } else {
      CHECK_THAT(text, Catch::Contains("lost rank 0"));
      broken_off += received.back() == Parcel::kUntouched ? 1 : 0;
    }
    let_go.get_future().wait();
  }
  CHECK(broken_off > 0);
}

}  // namespace train::engine::direct_memory_test
