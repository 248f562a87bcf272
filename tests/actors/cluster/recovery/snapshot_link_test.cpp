// Snapshots in memory between launchers: over real sockets, with real certificates.
#include <openssl/ssl.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <span>

#include "actors/cluster/network/secure_stream.hpp"
#include "actors/cluster/recovery/buddy_link.hpp"
#include "checkpoint/memory/snapshot_stream.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
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
  /// One that may send.
  [[nodiscard]] Result<std::unique_ptr<SecureStream>> connect() const {
    return run_on(loop, connect_securely(receiver->endpoint(), identity,
                                         std::chrono::steady_clock::now() + test::hang_limit));
  }
  test::TempDirectory directory;
  EventLoop loop;
  Result<CredentialFiles> files;
  Identity identity;
  std::unique_ptr<SnapshotReceiver> receiver;
};

/// Whether the other side hangs up.
bool is_hung_up_on(const EventLoop& loop, SecureStream& stream) {
  const auto wait = [&stream]() -> asio::awaitable<bool> {
    const auto limit = std::chrono::steady_clock::now() + test::hang_limit;
    const Deadline deadline(stream.next_layer(), limit);
    std::byte answer{};
    const bool answered = co_await receive_all(stream, std::span(&answer, 1));
    co_return !answered && std::chrono::steady_clock::now() < limit;
  };
  return run_on(loop, wait());
}

}  // namespace

TEST_CASE("snapshot link: each that is sealed here comes there, and is the same",
          "[actors][snapshot_link][CK-10][world]") {
  LinkSite site;
  const LinkMemory from = memory_of(1'000'001);
  const LinkMemory to = memory_of(1'000'001);
  site.receiver->receive_into(to);
  const auto sender = site.sender(from);
  for (const std::int64_t step : {10, 20, 30}) {
    write(*from, step);
    REQUIRE(site.receiver->wait_for(step, test::hang_limit));
    CHECK(same(*from, *to, step));
  }
  CHECK(to->whole_steps() == std::vector<std::int64_t>{30, 20});
}

TEST_CASE("snapshot link: who takes nothing holds nobody up, and gets the newest when it does",
          "[actors][snapshot_link][world]") {
  LinkSite site;
  constexpr std::uint64_t kMoreThanSocketsHold = std::uint64_t{24} << 20;
  const LinkMemory from = memory_of(kMoreThanSocketsHold);
  const LinkMemory to = memory_of(kMoreThanSocketsHold);
  const auto sender = site.sender(from);
  for (std::int64_t step = 10; step <= 50; step += 10) {
    write(*from, step);
  }
  site.receiver->receive_into(to);
  REQUIRE(site.receiver->wait_for(50, test::hang_limit));
  CHECK(same(*from, *to, 50));
  write(*from, 60);
  site.receiver->receive_into(nullptr);  // the sender ends all the same, at the end of this
}

TEST_CASE("snapshot link: memory of another layout is not touched, and the sender comes again",
          "[actors][snapshot_link][world]") {
  LinkSite site;
  const LinkMemory from = memory_of(5000);
  const LinkMemory other = memory_of(5001);
  const LinkMemory to = memory_of(5000);
  site.receiver->receive_into(other);
  const auto stream = site.connect();
  REQUIRE(stream.ok());
  const auto layout = checkpoint::layout_frame(from->layout());
  REQUIRE(run_on(site.loop, send_all(**stream, layout, test::hang_limit)));
  CHECK(is_hung_up_on(site.loop, **stream));
  const auto sender = site.sender(from);
  write(*from, 10);
  site.receiver->receive_into(to);
  REQUIRE(site.receiver->wait_for(10, test::hang_limit));
  CHECK(same(*from, *to, 10));
  site.receiver->receive_into(other);  // hangs up on the sender
  write(*from, 20);
  site.receiver->receive_into(to);
  REQUIRE(site.receiver->wait_for(20, test::hang_limit));
  CHECK(same(*from, *to, 20));
  CHECK(other->sealed_steps().empty());
}

TEST_CASE("snapshot link: one snapshot is given back", "[actors][snapshot_link][world]") {
  LinkSite site;
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;
  const LinkMemory from = memory_of(kBytes);
  const LinkMemory to = memory_of(kBytes);
  write(*from, 10);
  site.receiver->receive_into(to);
  const auto send = [&](std::int64_t step) {
    return send_once(site.loop, site.identity, site.receiver->endpoint(), *from, step, 120s);
  };
  REQUIRE(send(10));
  REQUIRE(site.receiver->wait_for(10, test::hang_limit));
  CHECK(same(*from, *to, 10));
  const Status none = send(20);
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "no snapshot of step 20");
  write(*from, 30);
  REQUIRE(send(30));
  REQUIRE(site.receiver->wait_for(30, test::hang_limit));
  CHECK(to->whole_steps() == std::vector<std::int64_t>{30, 10});
}

TEST_CASE("snapshot link: unauthenticated peers and nonsense change nothing",
          "[actors][snapshot_link][failure][world]") {
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
  const auto known = site.connect();
  REQUIRE(known.ok());
  // Whether all of it is taken depends on when the other side hangs up.
  (void)run_on(site.loop, send_all(**known, std::as_bytes(std::span(nonsense)), 120s)).ok();
  CHECK(test::read_to_end(stranger, test::hang_limit).has_value());
  CHECK(is_hung_up_on(site.loop, **known));
  CHECK(to->whole_steps() == std::vector<std::int64_t>{10});
  const test::TempDirectory elsewhere;
  const auto others = make_credentials(elsewhere.path() / "control");
  REQUIRE(others.ok());
  const Status refused =
      send_once(site.loop, worker_of(*others), site.receiver->endpoint(), *from, 20, 120s);
  CHECK_FALSE(refused);
  CHECK(to->whole_steps() == std::vector<std::int64_t>{10});
  REQUIRE(send_once(site.loop, site.identity, site.receiver->endpoint(), *from, 20, 120s));
  REQUIRE(site.receiver->wait_for(20, test::hang_limit));
  CHECK(to->whole_steps() == std::vector<std::int64_t>{20, 10});
}

}  // namespace train::actors
