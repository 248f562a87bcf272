#include "engine/collective/peer_mesh.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "engine/collective/peer_proof.hpp"
#include "tests/support/disks/few_descriptors.hpp"
#include "tests/support/disks/file_store.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"

// One rank connects with others that the test plays, byte by byte, and with strangers.
namespace train::engine::peer_mesh_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kGeneration = 7;

Descriptor blocking_socket() {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = test::hang_limit.count(), .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return socket;
}

template <class Message>
std::optional<Message> read_message(const Descriptor& socket) {
  Message message;
  const ssize_t got = ::recv(socket.get(), &message, sizeof(message), MSG_WAITALL);
  return got == ssize_t{sizeof(message)} ? std::optional(message) : std::nullopt;
}

void send_bytes(const Descriptor& socket, const void* bytes, std::size_t count) {
  std::ignore = ::send(socket.get(), bytes, count, MSG_NOSIGNAL);
}

/// The other side has closed the connection, whatever it said before.
bool is_closed(const Descriptor& socket) {
  char piece[256];
  ssize_t got = 1;
  while (got > 0) {
    got = ::recv(socket.get(), piece, sizeof(piece), 0);
  }
  return got == 0 || errno == ECONNRESET;
}

/// The highest of two ranks, whose port is open until the test has played rank 0.
class Accepting {
 public:
  /// By default no connection is closed because its proof is late.
  explicit Accepting(std::chrono::milliseconds proof_time = test::beyond_hang_limit)
      : store_(test::make_file_store(directory_.path())) {
    MeshOptions options;
    options.proof_time = proof_time;
    secret_ = unguessable();
    const auto* bytes = reinterpret_cast<const char*>(secret_.data());
    REQUIRE(store_->set("g7.secret", {bytes, bytes + secret_.size()}).ok());
    const std::string nowhere = "127.0.0.1:1";
    REQUIRE(store_->set("g7.address.0", {nowhere.begin(), nowhere.end()}).ok());
    options.rank = 1;
    options.world_size = 2;
    options.generation = kGeneration;
    options.address = "127.0.0.1";
    options.timeout = test::beyond_hang_limit;
    mesh_ = std::async(std::launch::async, [this, options] {
      const auto store = test::make_file_store(directory_.path());
      return connect_mesh(*store, options);
    });
    const auto found = store_->get("g7.address.1", test::hang_limit);
    REQUIRE(found.ok());
    const std::string text(found->begin(), found->end());
    address_.sin_family = AF_INET;
    address_.sin_port = htons(static_cast<std::uint16_t>(std::stoi(text.substr(10))));
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~Accepting() {
    if (mesh_.valid()) {
      std::ignore = play();
    }
  }

  [[nodiscard]] Descriptor connect() const {
    Descriptor socket = blocking_socket();
    connect(socket);
    return socket;
  }
  void connect(const Descriptor& socket) const {
    REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address_),
                      sizeof(address_)) == 0);
  }
  [[nodiscard]] ConnectionName name(std::uint32_t channel) const {
    return {.generation = kGeneration, .channel = channel, .from = 0, .to = 1};
  }
  [[nodiscard]] Hello hello(const Nonce& challenge, const ConnectionName& name) const {
    Hello hello{.name = name, .nonce = unguessable(), .proof = {}};
    hello.proof = prove(secret_, Side::connected, name, challenge, hello.nonce);
    return hello;
  }
  [[nodiscard]] const GenerationSecret& secret() const { return secret_; }

  /// One connection as rank 0 makes it. None: it has not been let in.
  [[nodiscard]] std::optional<Descriptor> join(std::uint32_t channel) const {
    Descriptor socket = connect();
    const auto challenge = read_message<Challenge>(socket);
    if (!challenge) {
      return std::nullopt;
    }
    const Hello said = hello(challenge->nonce, name(channel));
    send_bytes(socket, &said, sizeof(said));
    const auto welcome = read_message<Welcome>(socket);
    const Proof expected = prove(secret_, Side::accepted, said.name, challenge->nonce, said.nonce);
    const bool proven = welcome && same_proof(welcome->proof, expected);
    return proven ? std::optional(std::move(socket)) : std::nullopt;
  }
  /// Rank 0, to the end: how many of its channels are connected, with bytes that arrive. `again`:
  /// it tries until it is let in, as a rank does, where the machine may keep it from its proof for
  /// longer than it has.
  [[nodiscard]] std::size_t play(bool again = false) {
    std::vector<Descriptor> own;
    for (std::uint32_t channel = 0; channel < kChannelCount; ++channel) {
      std::optional<Descriptor> socket = join(channel);
      if (socket ||
          (again && test::comes_true([&] { return (socket = join(channel)).has_value(); }))) {
        own.push_back(std::move(*socket));
      }
    }
    const auto sockets = mesh_.get();
    INFO((sockets.ok() ? std::string() : sockets.error().message));
    CHECK(sockets.ok());
    std::size_t connected = 0;
    for (std::size_t i = 0; sockets.ok() && i < own.size(); ++i) {
      char byte = 'b';
      send_bytes(own[i], &byte, 1);
      pollfd watched{.fd = (*sockets)[i][0].get(), .events = POLLIN, .revents = 0};
      ::poll(&watched, 1, static_cast<int>(test::hang_limit / 1ms));
      connected += ::recv((*sockets)[i][0].get(), &byte, 1, 0) == 1 ? 1 : 0;
    }
    return connected;
  }

 private:
  test::TempDirectory directory_;
  std::unique_ptr<RendezvousStore> store_;
  GenerationSecret secret_;
  sockaddr_in address_ = {};
  std::future<Result<PeerSockets>> mesh_;
};

}  // namespace

TEST_CASE("mesh: who proves nothing is closed, and the peers connect all the same",
          "[engine][collective][tcp][unauthenticated peer]") {
  Accepting rank;
  const Descriptor silent = rank.connect();
  const Descriptor stranger = rank.connect();
  const auto challenge = read_message<Challenge>(stranger);
  REQUIRE(challenge.has_value());
  Hello said = rank.hello(challenge->nonce, rank.name(0));
  bool closed = true;
  SECTION("garbage") { std::memset(static_cast<void*>(&said), 'x', sizeof(said)); }
  SECTION("another secret") {
    said.proof = prove(unguessable(), Side::connected, said.name, challenge->nonce, said.nonce);
  }
  SECTION("another generation") {
    auto name = rank.name(0);
    name.generation = kGeneration - 1;
    said = rank.hello(challenge->nonce, name);
  }
  SECTION("a channel that does not exist") {
    said = rank.hello(challenge->nonce, rank.name(kChannelCount));
  }
  SECTION("the rank itself") {
    auto name = rank.name(0);
    name.from = 1;
    said = rank.hello(challenge->nonce, name);
  }
  SECTION("the proof of the other side") {
    said.proof = prove(rank.secret(), Side::accepted, said.name, challenge->nonce, said.nonce);
  }
  SECTION("a hello that was recorded") {
    const Descriptor again = rank.connect();
    REQUIRE(read_message<Challenge>(again).has_value());
    send_bytes(again, &said, sizeof(said));  // good for the challenge of `stranger` alone
    CHECK(is_closed(again));
    said.proof[0] ^= std::byte{1};
  }
  SECTION("half a hello") { closed = false; }
  SECTION("a reset") {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    Descriptor reset = rank.connect();
    ::setsockopt(reset.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    reset.reset();
    closed = false;
  }
  send_bytes(stranger, &said, closed ? sizeof(said) : sizeof(said) / 2);
  CHECK((!closed || is_closed(stranger)));
  CHECK(rank.play() == kChannelCount);
}

TEST_CASE("mesh: a rank that stood still counts no connection that was given up meanwhile",
          "[engine][collective][tcp]") {
  Accepting rank;
  std::vector<std::optional<Descriptor>> others;
  constexpr std::uint32_t kLast = kChannelCount - 1;
  for (std::uint32_t channel = 0; channel < kLast; ++channel) {
    others.push_back(rank.join(channel));
    REQUIRE(others.back());
  }
  Descriptor given_up = rank.connect();
  const auto challenge = read_message<Challenge>(given_up);
  REQUIRE(challenge.has_value());
  const Hello said = rank.hello(challenge->nonce, rank.name(kLast));
  const int together = 1;  // the hello and the end: as they lie there when the rank looks again
  ::setsockopt(given_up.get(), IPPROTO_TCP, TCP_CORK, &together, sizeof(together));
  send_bytes(given_up, &said, sizeof(said));
  given_up.reset();
  CHECK(rank.play() == kChannelCount);
}

TEST_CASE("mesh: a crowd at the port keeps nobody out",
          "[engine][collective][tcp][unauthenticated peer]") {
  Accepting rank;
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 500; ++i) {
    crowd.push_back(rank.connect());
  }
  CHECK(is_closed(crowd.front()));  // the oldest make room
  CHECK(rank.play() == kChannelCount);
}

TEST_CASE("mesh: without descriptors a stranger makes room, and the peers connect all the same",
          "[engine][collective][tcp][unauthenticated peer]") {
  Accepting rank;
  const Descriptor stranger = rank.connect();
  REQUIRE(read_message<Challenge>(stranger).has_value());  // It has been accepted.
  const Descriptor next = blocking_socket();
  {
    const test::FewDescriptors none(0);
    rank.connect(next);
    CHECK(is_closed(stranger));
  }
  CHECK(rank.play() == kChannelCount);
}

TEST_CASE("mesh: silence has its time", "[engine][collective][tcp][unauthenticated peer]") {
  Accepting rank(50ms);
  const Descriptor silent = rank.connect();
  REQUIRE(read_message<Challenge>(silent).has_value());
  CHECK(is_closed(silent));
  CHECK(rank.play(/*again=*/true) == kChannelCount);
}

namespace {

/// The lowest of two ranks, which connects to a port of the test.
class Connecting {
 public:
  explicit Connecting(std::chrono::milliseconds timeout, std::chrono::milliseconds proof_time,
                      bool listens = true)
      : store_(test::make_file_store(directory_.path())) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* place = reinterpret_cast<sockaddr*>(&address);
    listener_ = blocking_socket();
    REQUIRE(::bind(listener_.get(), place, size) == 0);
    REQUIRE(::getsockname(listener_.get(), place, &size) == 0);
    REQUIRE((!listens || ::listen(listener_.get(), 16) == 0));
    const std::string text = fmt::format("127.0.0.1:{}", ntohs(address.sin_port));
    REQUIRE(store_->set("g7.address.1", {text.begin(), text.end()}).ok());
    MeshOptions options;
    options.rank = 0;
    options.world_size = 2;
    options.generation = kGeneration;
    options.address = "127.0.0.1";
    options.timeout = timeout;
    options.proof_time = proof_time;
    mesh_ = std::async(std::launch::async, [this, options] {
      const auto store = test::make_file_store(directory_.path());
      return connect_mesh(*store, options);
    });
    const auto found = store_->get("g7.secret", test::hang_limit);
    REQUIRE(found.ok());
    std::memcpy(secret_.data(), found->data(), secret_.size());
  }

  [[nodiscard]] bool knocks() const {
    pollfd watched{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    return ::poll(&watched, 1, 0) == 1;
  }
  [[nodiscard]] Descriptor accept() const {
    return Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  /// Plays whoever has `secret`. False: the rank has given this connection up.
  [[nodiscard]] bool answer(const Descriptor& socket, const GenerationSecret& secret) const {
    const timeval patience{.tv_sec = test::hang_limit.count(), .tv_usec = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const Challenge challenge{unguessable()};
    send_bytes(socket, &challenge, sizeof(challenge));
    const auto hello = read_message<Hello>(socket);
    if (!hello) {
      return false;
    }
    const Welcome welcome{
        prove(secret, Side::accepted, hello->name, challenge.nonce, hello->nonce)};
    send_bytes(socket, &welcome, sizeof(welcome));
    return true;
  }
  [[nodiscard]] const GenerationSecret& secret() const { return secret_; }
  [[nodiscard]] bool is_over() const { return mesh_.wait_for(0ms) == std::future_status::ready; }
  [[nodiscard]] std::string end() {
    const auto sockets = mesh_.get();
    return sockets.ok() ? "" : sockets.error().message;
  }

 private:
  test::TempDirectory directory_;
  std::unique_ptr<RendezvousStore> store_;
  Descriptor listener_;
  GenerationSecret secret_ = {};
  std::future<Result<PeerSockets>> mesh_;
};

}  // namespace

TEST_CASE("mesh: a rank begins a connection anew until its peer proves itself",
          "[engine][collective][tcp][unauthenticated peer]") {
  Connecting rank(test::beyond_hang_limit, 200ms);
  std::vector<Descriptor> held;
  SECTION("closed, as by a crowd") {
    for (int i = 0; i < 5; ++i) {
      REQUIRE(rank.accept());
    }
  }
  SECTION("another secret") {
    for (int i = 0; i < 5; ++i) {
      held.push_back(rank.accept());
      std::ignore = rank.answer(held.back(), unguessable());
    }
  }
  SECTION("silence") {
    for (int i = 0; i < 5; ++i) {
      held.push_back(rank.accept());
      REQUIRE(held.back());
    }
  }
  CHECK_FALSE(rank.is_over());
  REQUIRE(test::comes_true([&] {
    if (rank.knocks()) {
      held.push_back(rank.accept());
      std::ignore = rank.answer(held.back(), rank.secret());
    }
    return rank.is_over();
  }));
  CHECK(rank.end().empty());
}

TEST_CASE("mesh: a stranger in the place of a rank is that rank's absence",
          "[engine][collective][tcp][unauthenticated peer]") {
  // Longer each time, until the rank has come to connect and to wait for an answer.
  std::string text;
  for (auto limit = 100ms; text.find("it says nothing") == std::string::npos; limit *= 4) {
    REQUIRE(limit < test::hang_limit);
    Connecting rank(limit, limit / 5);
    text = rank.end();
    CHECK_THAT(text, Catch::StartsWith(
                         fmt::format("waited {} ms for a connection with rank 1", limit.count())));
  }
}

TEST_CASE("mesh: nobody in the place of a rank is its loss", "[engine][collective][tcp]") {
  Connecting rank(test::beyond_hang_limit, 1s, false);
  CHECK(rank.end() == "lost rank 1 (Connection refused)");
}

TEST_CASE("mesh: a machine to which no way leads is lost at once", "[engine][collective][tcp]") {
  const test::TempDirectory directory;
  const auto store = test::make_file_store(directory.path());
  const std::string nowhere = "255.255.255.255:9";  // never the address of a machine
  REQUIRE(store->set("g7.address.1", {nowhere.begin(), nowhere.end()}).ok());
  MeshOptions options;
  options.rank = 0;
  options.world_size = 2;
  options.generation = kGeneration;
  options.address = "127.0.0.1";
  options.timeout = test::beyond_hang_limit;
  const auto connected = connect_mesh(*store, options);
  REQUIRE_FALSE(connected);
  CHECK_THAT(connected.error().message, Catch::Contains("lost rank 1 (Network is unreachable)"));
}

}  // namespace train::engine::peer_mesh_test
