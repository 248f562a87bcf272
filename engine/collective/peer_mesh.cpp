#include "engine/collective/peer_mesh.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.hpp"
#include "engine/collective/exchange_header.hpp"
#include "engine/collective/peer_proof.hpp"

namespace train::engine {

namespace {

constexpr int kProbes = 3;  // that go unanswered within the limit, after as long a silence each

Status set_option(int socket, int level, int option, int value) {
  if (::setsockopt(socket, level, option, &value, sizeof(value)) != 0) {
    return failure(fmt::format("a connection cannot be watched: {}", std::strerror(errno)));
  }
  return {};
}

}  // namespace

Status find_cut(int socket, std::chrono::seconds limit) {
  const auto seconds = static_cast<int>(limit.count());
  const int between = std::max(1, seconds / (kProbes + 1));
  const std::array<std::pair<std::pair<int, int>, int>, 5> options = {{
      {{SOL_SOCKET, SO_KEEPALIVE}, 1},
      {{IPPROTO_TCP, TCP_KEEPIDLE}, between},
      {{IPPROTO_TCP, TCP_KEEPINTVL}, between},
      {{IPPROTO_TCP, TCP_KEEPCNT}, kProbes},
      {{IPPROTO_TCP, TCP_USER_TIMEOUT}, seconds * 1000},  // of what was sent and not received
  }};
  for (const auto& [option, value] : options) {
    TRAIN_RETURN_IF_ERROR(set_option(socket, option.first, option.second, value));
  }
  return {};
}

namespace {

using Clock = std::chrono::steady_clock;

/// Before a connection that failed is begun anew, and before the next look at a queue that the
/// system could not serve.
constexpr auto kPause = std::chrono::milliseconds(20);
/// Connections accepted at a time; between two batches the accepted ones can send their proofs.
constexpr int kCrowd = 16;

enum class Arrival : std::uint8_t { partial, whole, ended };

/// One message of the proof as it arrives: never a byte of what follows it.
template <class Message>
class Arriving {
 public:
  [[nodiscard]] Arrival read(int socket) {
    std::byte* bytes = reinterpret_cast<std::byte*>(&message_);
    const ssize_t got = ::recv(socket, bytes + arrived_, sizeof(Message) - arrived_, MSG_DONTWAIT);
    if (got <= 0) {
      const bool later = got < 0 && (errno == EAGAIN || errno == EINTR);
      return later ? Arrival::partial : Arrival::ended;
    }
    arrived_ += static_cast<std::size_t>(got);
    return arrived_ == sizeof(Message) ? Arrival::whole : Arrival::partial;
  }
  [[nodiscard]] const Message& message() const { return message_; }

 private:
  static_assert(std::is_trivially_copyable_v<Message>);
  Message message_ = {};
  std::size_t arrived_ = 0;
};

/// Tells whether the sender of what has come has closed the connection since.
bool is_given_up(int socket) {
  std::byte next = {};
  const ssize_t got = ::recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

/// A new connection takes a short message whole or not at all.
template <class Message>
bool send_message(int socket, const Message& message) {
  return ::send(socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(message));
}

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return fmt::format("{}:{}", text, ntohs(address.sin_port));
}

std::optional<sockaddr_in> parse_address(const std::string& text) {
  const std::size_t colon = text.find(':');
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  if (colon == std::string::npos ||
      ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &address.sin_addr) != 1 ||
      std::from_chars(text.data() + colon + 1, end, port).ptr != end) {
    return std::nullopt;
  }
  address.sin_port = htons(port);
  return address;
}

/// A connection that was accepted and has proven nothing yet.
struct UnauthenticatedPeer {
  Descriptor socket;
  Clock::time_point limit;
  Nonce challenge = {};
  Arriving<Hello> hello;
};

/// A connection that this rank begins, again and again until it is proven.
struct Attempt {
  enum class Stage : std::uint8_t { pause, connecting, challenge, welcome, proven };

  int peer = 0;
  std::size_t channel = 0;
  Stage stage = Stage::pause;
  Descriptor socket;
  Clock::time_point limit;  ///< Deadline of this stage.
  Arriving<Challenge> challenge;
  Hello hello;
  Arriving<Welcome> welcome;
  std::string trouble;  ///< Why the last one came to nothing.
};

class Mesh {
 public:
  explicit Mesh(const MeshOptions& options)
      : options_(options), missing_(kChannelCount * (as_index(options.world_size) - 1)) {
    for (std::vector<Descriptor>& sockets : proven_) {
      sockets.resize(as_index(options.world_size));
    }
  }

  Status listen();
  /// Tells the others where this rank is, and learns the same of them.
  Status meet(RendezvousStore& store);
  Status connect();
  [[nodiscard]] PeerSockets take() { return std::move(proven_); }

 private:
  [[nodiscard]] std::string key(const std::string& name) const {
    return fmt::format("g{}.{}", options_.generation, name);
  }
  [[nodiscard]] ConnectionName name_of(std::size_t channel, int from, int to) const {
    return {.generation = options_.generation,
            .channel = static_cast<std::uint32_t>(channel),
            .from = from,
            .to = to};
  }
  Status share_secret(RendezvousStore& store);
  /// Waits for something, at most until `deadline`, and serves all that has come.
  Status serve(Clock::time_point deadline);
  [[nodiscard]] Clock::time_point next_limit(Clock::time_point deadline) const;

  void accept_crowd();
  void greet(Descriptor socket);
  /// False: it is none of ours.
  bool hear(UnauthenticatedPeer& peer);
  bool is_expected(const ConnectionName& name) const;

  Status begin(Attempt& attempt);
  Status go_on(Attempt& attempt);
  void begin_again(Attempt& attempt, const std::string& trouble);
  Status could_not_connect(Attempt& attempt, int error);
  Status answer(Attempt& attempt);

  Status keep(std::size_t channel, int peer, Descriptor socket);
  [[nodiscard]] Error who_is_missing() const;

  const MeshOptions& options_;
  GenerationSecret secret_ = {};
  Descriptor listener_;
  Clock::time_point accept_again_;
  std::string address_;
  std::vector<sockaddr_in> addresses_;                ///< By rank.
  std::vector<UnauthenticatedPeer> unauthenticated_;  ///< The oldest first.
  std::vector<Attempt> attempts_;
  PeerSockets proven_;
  std::size_t missing_;  ///< Connections.
  Status kept_;
};

Status Mesh::listen() {
  std::optional<sockaddr_in> address = parse_address(options_.address + ":0");
  TRAIN_CHECK(address.has_value(), "an address {}", options_.address);
  listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t size = sizeof(*address);
  auto* place = reinterpret_cast<sockaddr*>(&*address);
  if (!listener_ || ::bind(listener_.get(), place, size) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener_.get(), place, &size) != 0) {
    return failure(
        fmt::format("{} cannot be listened on: {}", options_.address, std::strerror(errno)));
  }
  address_ = text_of(*address);
  return {};
}

Status Mesh::share_secret(RendezvousStore& store) {
  if (options_.rank == 0) {
    secret_ = unguessable();
    const auto* bytes = reinterpret_cast<const char*>(secret_.data());
    return store.set(key("secret"), {bytes, bytes + secret_.size()});
  }
  const Result<std::vector<char>> found = store.get(key("secret"), options_.timeout);
  if (!found) {
    return failure(fmt::format("rank 0 has not appeared: {}", found.error().message));
  }
  if (found->size() != secret_.size()) {
    return failure(fmt::format("rank 0 has left a secret of {} bytes", found->size()));
  }
  std::memcpy(secret_.data(), found->data(), secret_.size());
  return {};
}

Status Mesh::meet(RendezvousStore& store) {
  TRAIN_RETURN_IF_ERROR(
      store.set(key(fmt::format("address.{}", options_.rank)), {address_.begin(), address_.end()}));
  TRAIN_RETURN_IF_ERROR(share_secret(store));
  for (int peer = 0; peer < options_.world_size; ++peer) {
    // Addresses of lower ranks are read too, though those connect: every rank names an absent one.
    const auto found = store.get(key(fmt::format("address.{}", peer)), options_.timeout);
    if (!found) {
      return failure(fmt::format("rank {} has not appeared: {}", peer, found.error().message));
    }
    const std::string text(found->begin(), found->end());
    const std::optional<sockaddr_in> address = parse_address(text);
    if (!address) {
      return failure(fmt::format("rank {} has left the address \"{}\"", peer, text));
    }
    addresses_.push_back(*address);
  }
  for (int peer = options_.rank + 1; peer < options_.world_size; ++peer) {
    for (std::size_t channel = 0; channel < kChannelCount; ++channel) {
      Attempt& attempt = attempts_.emplace_back();
      attempt.peer = peer;
      attempt.channel = channel;
    }
  }
  return {};
}

Status Mesh::connect() {
  Clock::time_point deadline = Clock::now() + options_.timeout;
  while (missing_ > 0) {
    const std::size_t before = missing_;
    TRAIN_RETURN_IF_ERROR(serve(deadline));
    if (missing_ < before) {
      deadline = Clock::now() + options_.timeout;
    } else if (Clock::now() >= deadline) {
      return who_is_missing();
    }
  }
  return {};
}

Clock::time_point Mesh::next_limit(Clock::time_point deadline) const {
  Clock::time_point next = deadline;
  for (const UnauthenticatedPeer& peer : unauthenticated_) {
    next = std::min(next, peer.limit);
  }
  for (const Attempt& attempt : attempts_) {
    if (attempt.stage != Attempt::Stage::proven) {
      next = std::min(next, attempt.limit);
    }
  }
  return accept_again_ > Clock::now() ? std::min(next, accept_again_) : next;
}

Status Mesh::serve(Clock::time_point deadline) {
  const bool accepts = accept_again_ <= Clock::now();
  std::vector<pollfd> watched = {
      {.fd = accepts ? listener_.get() : -1, .events = POLLIN, .revents = 0}};
  for (const UnauthenticatedPeer& peer : unauthenticated_) {
    watched.push_back({.fd = peer.socket.get(), .events = POLLIN, .revents = 0});
  }
  for (const Attempt& attempt : attempts_) {
    const bool connecting = attempt.stage == Attempt::Stage::connecting;
    watched.push_back({.fd = attempt.socket.get(),
                       .events = static_cast<short>(connecting ? POLLOUT : POLLIN),
                       .revents = 0});
  }
  const auto wait =
      std::chrono::ceil<std::chrono::milliseconds>(next_limit(deadline) - Clock::now());
  const auto most = std::clamp<std::int64_t>(wait.count(), 0, 60'000);
  if (::poll(watched.data(), watched.size(), static_cast<int>(most)) < 0 && errno != EINTR) {
    return failure(fmt::format("connections cannot be waited for: {}", std::strerror(errno)));
  }
  // Data that has arrived counts, however late this process looks: limits are checked afterwards.
  std::size_t at = 1;
  for (UnauthenticatedPeer& peer : unauthenticated_) {
    if (watched[at++].revents != 0 && !hear(peer)) {
      peer.socket.reset();
    }
  }
  for (Attempt& attempt : attempts_) {
    if (watched[at++].revents != 0) {
      TRAIN_RETURN_IF_ERROR(go_on(attempt));
    }
  }
  const Clock::time_point now = Clock::now();
  std::erase_if(unauthenticated_, [now](const UnauthenticatedPeer& peer) {
    return !peer.socket || peer.limit <= now;
  });
  for (Attempt& attempt : attempts_) {
    if (attempt.stage == Attempt::Stage::pause && attempt.limit <= now) {
      TRAIN_RETURN_IF_ERROR(begin(attempt));
    } else if (attempt.stage != Attempt::Stage::proven && attempt.limit <= now) {
      begin_again(attempt, "it says nothing");
    }
  }
  if (watched[0].revents != 0) {
    accept_crowd();
  }
  return kept_;
}

void Mesh::accept_crowd() {
  for (int i = 0; i < kCrowd; ++i) {
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0) {
      greet(Descriptor(socket));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!unauthenticated_.empty()) {
        unauthenticated_.erase(unauthenticated_.begin());  // Frees a descriptor for the next one.
      }
      accept_again_ = Clock::now() + kPause;
      return;
    }  // else this one has gone, or its network has
  }
}

void Mesh::greet(Descriptor socket) {
  if (unauthenticated_.size() >= missing_ + options_.most_unauthenticated) {
    unauthenticated_.erase(unauthenticated_.begin());
  }
  UnauthenticatedPeer peer;
  peer.challenge = unguessable();
  peer.limit = Clock::now() + options_.proof_time;
  if (send_message(socket.get(), Challenge{peer.challenge})) {
    peer.socket = std::move(socket);
    unauthenticated_.push_back(std::move(peer));
  }
}

bool Mesh::is_expected(const ConnectionName& name) const {
  return name.channel < kChannelCount && name.from >= 0 && name.from < options_.rank &&
         name == name_of(name.channel, name.from, options_.rank);
}

bool Mesh::hear(UnauthenticatedPeer& peer) {
  const Arrival now = peer.hello.read(peer.socket.get());
  if (now != Arrival::whole) {
    return now == Arrival::partial;
  }
  const Hello& hello = peer.hello.message();
  const auto proof_of = [&](Side side) {
    return prove(secret_, side, hello.name, peer.challenge, hello.nonce);
  };
  // A rank that waited too long for this one, when it stood still, has begun another connection.
  if (is_given_up(peer.socket.get()) || !is_expected(hello.name) ||
      !same_proof(hello.proof, proof_of(Side::connected)) ||
      !send_message(peer.socket.get(), Welcome{proof_of(Side::accepted)})) {
    return false;
  }
  kept_ = keep(hello.name.channel, hello.name.from, std::move(peer.socket));
  return true;
}

Status Mesh::begin(Attempt& attempt) {
  attempt.socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!attempt.socket) {
    begin_again(attempt, std::strerror(errno));
    return {};
  }
  attempt.stage = Attempt::Stage::connecting;
  attempt.limit = Clock::now() + options_.proof_time;
  const sockaddr_in& address = addresses_[as_index(attempt.peer)];
  if (::connect(attempt.socket.get(), reinterpret_cast<const sockaddr*>(&address),
                sizeof(address)) == 0 ||
      errno == EINPROGRESS) {
    return {};
  }
  return could_not_connect(attempt, errno);
}

void Mesh::begin_again(Attempt& attempt, const std::string& trouble) {
  attempt.socket.reset();
  attempt.challenge = {};
  attempt.welcome = {};
  attempt.stage = Attempt::Stage::pause;
  attempt.limit = Clock::now() + kPause;
  attempt.trouble = trouble;
}

/// A rank listens from before it publishes its address until all ranks are connected, so a closed
/// port means that it has ended. An unreachable machine is a loss, too: no other process can cause
/// that error, and the head starts a new generation.
Status Mesh::could_not_connect(Attempt& attempt, int error) {
  for (const int lost : {ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EHOSTDOWN, EACCES, EPERM}) {
    if (error == lost) {
      return failure(fmt::format("lost rank {} ({})", attempt.peer, std::strerror(error)));
    }
  }
  begin_again(attempt, std::strerror(error));
  return {};
}

Status Mesh::go_on(Attempt& attempt) {
  if (attempt.stage == Attempt::Stage::connecting) {
    int error = 0;
    socklen_t size = sizeof(error);
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
      return could_not_connect(attempt, error);
    }
    attempt.stage = Attempt::Stage::challenge;
    return {};
  }
  const bool challenged = attempt.stage == Attempt::Stage::challenge;
  const Arrival now = challenged ? attempt.challenge.read(attempt.socket.get())
                                 : attempt.welcome.read(attempt.socket.get());
  if (now == Arrival::ended) {
    begin_again(attempt, "it closed the connection");
  }
  return now == Arrival::whole ? answer(attempt) : Status();
}

Status Mesh::answer(Attempt& attempt) {
  const ConnectionName name = name_of(attempt.channel, options_.rank, attempt.peer);
  const Nonce& challenge = attempt.challenge.message().nonce;
  if (attempt.stage == Attempt::Stage::challenge) {
    attempt.hello = {.name = name, .nonce = unguessable(), .proof = {}};
    attempt.hello.proof = prove(secret_, Side::connected, name, challenge, attempt.hello.nonce);
    attempt.stage = Attempt::Stage::welcome;
    if (!send_message(attempt.socket.get(), attempt.hello)) {
      begin_again(attempt, "it did not accept the greeting");
    }
    return {};
  }
  const Proof expected = prove(secret_, Side::accepted, name, challenge, attempt.hello.nonce);
  if (!same_proof(attempt.welcome.message().proof, expected)) {
    begin_again(attempt, "another program answers at its address");
    return {};
  }
  attempt.stage = Attempt::Stage::proven;
  return keep(attempt.channel, attempt.peer, std::move(attempt.socket));
}

Status Mesh::keep(std::size_t channel, int peer, Descriptor socket) {
  TRAIN_RETURN_IF_ERROR(set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1));
  TRAIN_RETURN_IF_ERROR(find_cut(socket.get(), options_.cut_after));
  Descriptor& place = proven_[channel][as_index(peer)];
  missing_ -= place ? 0 : 1;  // a second one: the peer had given the first one up
  place = std::move(socket);
  return {};
}

Error Mesh::who_is_missing() const {
  std::vector<int> ranks;
  std::string trouble;
  for (int peer = 0; peer < options_.world_size; ++peer) {
    const bool all = std::all_of(proven_.begin(), proven_.end(), [&](const auto& sockets) {
      return static_cast<bool>(sockets[as_index(peer)]);
    });
    if (peer != options_.rank && !all) {
      ranks.push_back(peer);
    }
  }
  for (const Attempt& attempt : attempts_) {
    if (!attempt.trouble.empty() && attempt.stage != Attempt::Stage::proven) {
      trouble = fmt::format(" (rank {}: {})", attempt.peer, attempt.trouble);
    }
  }
  return failure(fmt::format("waited {} ms for a connection with {}{}", options_.timeout.count(),
                             name_ranks(ranks), trouble));
}

}  // namespace

Result<PeerSockets> connect_mesh(RendezvousStore& store, const MeshOptions& options) {
  Mesh mesh(options);
  TRAIN_RETURN_IF_ERROR(mesh.listen());
  TRAIN_RETURN_IF_ERROR(mesh.meet(store));
  TRAIN_RETURN_IF_ERROR(mesh.connect());
  return mesh.take();
}

}  // namespace train::engine
