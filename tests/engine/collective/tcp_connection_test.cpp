#include "engine/collective/tcp_connection.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

// One end is the connection, the other is bytes of the test: what a peer may say, and may not.
namespace train::engine::tcp_connection_test {
namespace {

constexpr std::byte kUntouched{0xee};
constexpr std::uint32_t kHeader = 0x68647231;
constexpr std::uint32_t kReady = 0x72647931;
constexpr std::uint32_t kData = 0x64617431;
constexpr std::uint32_t kFarewell = 0x66617231;

class Wire {
 public:
  Wire() {
    int ends[2] = {-1, -1};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    connection.emplace(Descriptor(ends[0]));
    peer_.reset(ends[1]);
  }

  void say(std::uint32_t kind, std::uint64_t bytes, const std::vector<std::byte>& body = {}) {
    std::array<std::byte, 16> frame = {};
    std::memcpy(frame.data(), &kind, sizeof(kind));
    std::memcpy(frame.data() + 8, &bytes, sizeof(bytes));
    send(frame.data(), frame.size());
    send(body.data(), body.size());
  }
  void say_header() {
    say(kHeader, sizeof(ExchangeHeader), std::vector<std::byte>(sizeof(ExchangeHeader)));
  }
  void close() { peer_.reset(); }
  void move() {
    while (connection->move_bytes()) {
    }
  }
  [[nodiscard]] bool lost() const { return connection->state() == TcpConnection::State::lost; }

  std::optional<TcpConnection> connection;

 private:
  void send(const std::byte* bytes, std::size_t count) {
    REQUIRE(::send(peer_.get(), bytes, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
  }
  Descriptor peer_;
};

}  // namespace

TEST_CASE("tcp: what a peer may not say loses it, and writes nowhere",
          "[engine][collective][tcp]") {
  Wire wire;
  // Room on both sides of the place tells what has been written beside it.
  std::vector<std::byte> memory(12000, kUntouched);
  const std::span<std::byte> place = std::span(memory).subspan(1000, 10000);
  const std::vector<std::byte> many(11000, std::byte{5});
  wire.say_header();
  wire.move();
  REQUIRE(wire.connection->header() != nullptr);

  SECTION("data before its place is there") {
    wire.say(kData, many.size(), many);
    wire.move();
    CHECK(wire.connection->why() == "it sends 11000 bytes where 0 are awaited");
  }
  SECTION("once the place is there") {
    wire.connection->exchange_data({}, place);
    SECTION("more data than was agreed on") { wire.say(kData, many.size(), many); }
    SECTION("less") { wire.say(kData, 9999, many); }
    SECTION("a header that is too long") { wire.say(kHeader, 1U << 20, many); }
    SECTION("a header that is too short") { wire.say(kHeader, 8, many); }
    SECTION("no message of this protocol") { wire.say(0x20544547, 0, many); }
    SECTION("ready for nothing, twice") {
      wire.say(kReady, 0);
      wire.say(kReady, 0);
    }
    SECTION("a farewell with bytes") { wire.say(kFarewell, 1, many); }
    wire.move();
    CHECK_FALSE(wire.connection->has_received());
  }
  CHECK(wire.lost());
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == kUntouched; }));
}

TEST_CASE("tcp: what follows data is the next message, and no part of the place",
          "[engine][collective][tcp]") {
  Wire wire;
  std::vector<std::byte> memory(12000, kUntouched);
  const std::span<std::byte> place = std::span(memory).subspan(1000, 10000);
  wire.say_header();
  wire.move();
  wire.connection->exchange_data({}, place);
  wire.say(kData, place.size(), std::vector<std::byte>(place.size(), std::byte{5}));
  wire.say_header();
  wire.move();
  CHECK(wire.connection->has_received());
  CHECK(std::count(memory.begin(), memory.end(), std::byte{5}) == 10000);
  CHECK(std::count(memory.begin(), memory.end(), kUntouched) == 2000);
  CHECK(wire.connection->header() != nullptr);
  CHECK(wire.connection->state() == TcpConnection::State::open);
}

TEST_CASE("tcp: who says farewell has left, and who does not is lost",
          "[engine][collective][tcp]") {
  Wire wire;
  SECTION("in order") {
    wire.say(kFarewell, 0);
    wire.close();
    wire.connection->end();
    CHECK(wire.connection->state() == TcpConnection::State::left);
  }
  SECTION("without a word") {
    wire.close();
    wire.connection->end();
    CHECK(wire.connection->why() == "Connection closed by peer");
  }
  SECTION("in the middle of an exchange that this side has not come to") {
    wire.say_header();
    wire.say_header();
    wire.move();
    wire.close();
    wire.connection->end();
    CHECK(wire.lost());
    CHECK(wire.connection->header() != nullptr);  // what came before counts
  }
}

TEST_CASE("tcp: data waits until the peer is ready for it", "[engine][collective][tcp]") {
  Wire wire;
  const std::vector<std::byte> sent(5000, std::byte{5});
  wire.say_header();
  wire.move();
  wire.connection->exchange_data(sent, {});
  wire.move();
  CHECK_FALSE(wire.connection->waits_to_write());
  CHECK_FALSE(wire.connection->is_sent());
  wire.say(kReady, 0);
  wire.move();
  CHECK(wire.connection->is_sent());
}

}  // namespace train::engine::tcp_connection_test
