// Snapshots in memory between launchers: over real sockets, with real certificates.
#include <fmt/format.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <thread>

#include "actors/cluster/network/secure_stream.hpp"
#include "actors/cluster/recovery/buddy_link.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/stranger.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using checkpoint::MemorySnapshots;
using LinkMemory = SnapshotReceiver::Memory;

constexpr std::int64_t kRanks = 2;

LinkMemory memory_of(std::uint64_t shard_bytes) {
  auto made = MemorySnapshots::create(
      {.ranks = 4, .plan_digest = 7, .first_rank = 0, .shard_bytes = {shard_bytes, shard_bytes}});
  REQUIRE(made.ok());
  return std::make_shared<const MemorySnapshots>(std::move(made).value());
}

void write(const MemorySnapshots& memory, std::int64_t step) {
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    std::vector<std::byte> state(memory.layout().shard_bytes.front(),
                                 static_cast<std::byte>(step + rank));
    const auto rows = static_cast<std::int64_t>(state.size());
    memory.write(rank, step,
                 std::vector{engine::StateView{"w", {rows}, 0, rows, state.data(), state.size()}});
  }
}

bool same(const MemorySnapshots& left, const MemorySnapshots& right, std::int64_t step) {
  bool equal = true;
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    const auto a = left.bytes_of(rank, step);
    const auto b = right.bytes_of(rank, step);
    equal = equal && !a.empty() && std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  return equal;
}

Identity worker_of(const CredentialFiles& files) {
  const auto identity = load_identity(files, StreamEnd::worker);
  REQUIRE(identity.ok());
  return *identity;
}

struct LinkSite {
  LinkSite() : files(make_credentials(directory.path() / "control")) {
    std::signal(SIGPIPE, SIG_IGN);  // as in every process with a control connection
    REQUIRE(files.ok());
    identity = worker_of(*files);
    auto opened = SnapshotReceiver::open(loop, *files, "");
    REQUIRE(opened.ok());
    receiver = std::move(opened).value();
  }
  [[nodiscard]] std::shared_ptr<Task> sender(const LinkMemory& memory) const {
    return start_sending(loop, identity, receiver->endpoint(), memory);
  }
  test::TempDirectory directory;
  EventLoop loop;
  Result<CredentialFiles> files;
  Identity identity;
  std::unique_ptr<SnapshotReceiver> receiver;
};

}  // namespace

TEST_CASE("snapshot link: each that is sealed here comes there, and is the same",
          "[actors][snapshot_link][CK-10]") {
  LinkSite site;
  const LinkMemory from = memory_of(1'000'001);
  const LinkMemory to = memory_of(1'000'001);
  site.receiver->receive_into(to);
  const auto sender = site.sender(from);
  for (const std::int64_t step : {10, 20, 30}) {
    write(*from, step);
    REQUIRE(site.receiver->wait_for(step, 120s));
    CHECK(same(*from, *to, step));
  }
  CHECK(to->whole_steps() == std::vector<std::int64_t>{30, 20});
}

TEST_CASE("snapshot link: who takes nothing holds nobody up, and gets the newest when it does",
          "[actors][snapshot_link]") {
  LinkSite site;
  constexpr std::uint64_t kMoreThanSocketsHold = std::uint64_t{24} << 20;
  const LinkMemory from = memory_of(kMoreThanSocketsHold);
  const LinkMemory to = memory_of(kMoreThanSocketsHold);
  const auto sender = site.sender(from);
  for (std::int64_t step = 10; step <= 50; step += 10) {
    write(*from, step);
  }
  site.receiver->receive_into(to);
  REQUIRE(site.receiver->wait_for(50, 120s));
  CHECK(same(*from, *to, 50));
  write(*from, 60);
  site.receiver->receive_into(nullptr);  // the sender ends all the same, at the end of this
}

TEST_CASE("snapshot link: memory of another layout is not touched, and the sender comes again",
          "[actors][snapshot_link]") {
  LinkSite site;
  const LinkMemory from = memory_of(5000);
  const LinkMemory other = memory_of(5001);
  const LinkMemory to = memory_of(5000);
  site.receiver->receive_into(other);
  const auto sender = site.sender(from);
  write(*from, 10);
  CHECK_FALSE(site.receiver->wait_for(10, 300ms));
  site.receiver->receive_into(to);
  REQUIRE(site.receiver->wait_for(10, 120s));
  CHECK(same(*from, *to, 10));
  CHECK(other->sealed_steps().empty());
}

TEST_CASE("snapshot link: one snapshot is given back", "[actors][snapshot_link]") {
  LinkSite site;
  constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
  const LinkMemory from = memory_of(kBytes);
  const LinkMemory to = memory_of(kBytes);
  write(*from, 10);
  site.receiver->receive_into(to);
  const auto before = std::chrono::steady_clock::now();
  REQUIRE(send_once(site.loop, site.identity, site.receiver->endpoint(), *from, 10, 120s));
  REQUIRE(site.receiver->wait_for(10, 120s));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - before;
  fmt::print("snapshot link: {:.0f} MB/s\n", kRanks * kBytes / taken.count() / 1e6);
  CHECK(same(*from, *to, 10));
  const Status none =
      send_once(site.loop, site.identity, site.receiver->endpoint(), *from, 20, 120s);
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "no snapshot of step 20");
  CHECK_FALSE(site.receiver->wait_for(20, 50ms));
}

TEST_CASE("snapshot link: unauthenticated peers and nonsense change nothing",
          "[actors][snapshot_link][failure]") {
  LinkSite site;
  const LinkMemory from = memory_of(5000);
  const LinkMemory to = memory_of(5000);
  write(*to, 10);
  write(*from, 10);
  write(*from, 20);
  site.receiver->receive_into(to);
  const auto stranger = test::connect_to(site.receiver->endpoint());  // without a certificate
  REQUIRE(stranger);
  const std::string nonsense(100'000, 'x');
  ::send(stranger.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL);
  const auto known = run_on(site.loop, connect_securely(site.receiver->endpoint(), site.identity,
                                                        std::chrono::steady_clock::now() + 120s));
  REQUIRE(known.ok());
  // Whether all of it is taken depends on when the other side hangs up.
  (void)run_on(site.loop, send_all(**known, std::as_bytes(std::span(nonsense)), 1s)).ok();
  CHECK_FALSE(site.receiver->wait_for(20, 100ms));
  CHECK(to->whole_steps() == std::vector<std::int64_t>{10});
  const test::TempDirectory elsewhere;
  const auto others = make_credentials(elsewhere.path() / "control");
  REQUIRE(others.ok());
  const Status refused =
      send_once(site.loop, worker_of(*others), site.receiver->endpoint(), *from, 20, 5s);
  CHECK_FALSE(refused);
  CHECK(to->whole_steps() == std::vector<std::int64_t>{10});
  REQUIRE(send_once(site.loop, site.identity, site.receiver->endpoint(), *from, 20, 120s));
  REQUIRE(site.receiver->wait_for(20, 120s));
  CHECK(to->whole_steps() == std::vector<std::int64_t>{20, 10});
}

}  // namespace train::actors
