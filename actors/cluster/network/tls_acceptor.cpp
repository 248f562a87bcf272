#include "actors/cluster/network/tls_acceptor.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "base/check.hpp"

namespace train::actors {
namespace {

constexpr int kBacklog = 1024;

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

Error cannot_listen(const std::string& address, std::uint16_t port, int error_number) {
  const std::string where = fmt::format("{}:{}", address, port);
  switch (error_number) {
    case EADDRINUSE:
      return user_error(fmt::format(
          "parallel.port = {}: {} is taken; choose another, or 0 for any free one", port, where));
    case EACCES:
      return user_error(
          fmt::format("parallel.port = {}: not allowed to listen there; choose one above 1023, or "
                      "0 for any free one",
                      port));
    case EADDRNOTAVAIL:
      return user_error(
          fmt::format("parallel.interface: {} is no address of this node; leave it "
                      "empty for one node",
                      address));
    default:
      return failure(fmt::format("cannot listen on {}: {}", where, text_of(error_number)));
  }
}

constexpr std::size_t kMostWaiting = 64;
constexpr std::chrono::milliseconds kPatience{2000};
constexpr int kRest_ms = 100;  // without a free descriptor

short events_of(TlsSession::State state) {
  return state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
}

}  // namespace

Result<std::pair<Descriptor, std::uint16_t>> listen_on(const std::string& host,
                                                       std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return user_error(fmt::format("parallel.interface: '{}' is no IPv4 address", host));
  }
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), generic, size) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    return cannot_listen(host, port, errno);
  }
  return std::pair(std::move(socket), ntohs(address.sin_port));
}

TlsAcceptor::TlsAcceptor(Descriptor listening, TlsContext context, Admit admit)
    : listening_(std::move(listening)), context_(std::move(context)), admit_(std::move(admit)) {
  thread_ = std::thread([this] { serve(); });
}

TlsAcceptor::~TlsAcceptor() {
  wake_.set();
  thread_.join();
}

int TlsAcceptor::wait_ms() const {
  const int rest = exhausted_ ? kRest_ms : -1;
  if (unauthenticated_peers_.empty()) {
    return rest;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      unauthenticated_peers_.front().deadline - Clock::now());
  const int until = static_cast<int>(std::max<std::int64_t>(0, left.count()));
  return exhausted_ ? std::min(until, rest) : until;
}

void TlsAcceptor::serve() {
  std::vector<pollfd> watched;
  for (;;) {
    watched.assign({{.fd = wake_.descriptor(), .events = POLLIN, .revents = 0},
                    {.fd = exhausted_ ? -1 : listening_.get(), .events = POLLIN, .revents = 0}});
    for (const Peer& peer : unauthenticated_peers_) {
      watched.push_back({.fd = peer.socket.get(), .events = events_of(peer.wants), .revents = 0});
    }
    const int ready = ::poll(watched.data(), watched.size(), wait_ms());
    TRAIN_CHECK(ready >= 0 || errno == EINTR);
    if (ready > 0 && watched[0].revents != 0) {
      return;
    }
    std::size_t index = 2;
    const auto now = Clock::now();
    for (auto peer = unauthenticated_peers_.begin(); peer != unauthenticated_peers_.end();
         ++index) {
      if (ready > 0 && watched[index].revents != 0) {
        peer->spoke = true;
        peer = continue_handshake(peer);
      } else if (peer->deadline <= now) {
        peer = unauthenticated_peers_.erase(peer);
      } else {
        ++peer;
      }
    }
    if (exhausted_ || (ready > 0 && watched[1].revents != 0)) {
      accept_all();
    }
  }
}

void TlsAcceptor::accept_all() {
  exhausted_ = false;
  // A bound, so that those who wait get their turn under a flood.
  for (std::size_t i = 0; i < kMostWaiting; ++i) {
    Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      exhausted_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      return;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (unauthenticated_peers_.size() == kMostWaiting) {
      make_room();
    }
    TlsSession session(context_, socket.get());
    unauthenticated_peers_.push_back({.socket = std::move(socket),
                                      .session = std::move(session),
                                      .deadline = Clock::now() + kPatience});
    continue_handshake(std::prev(unauthenticated_peers_.end()));
  }
}

TlsAcceptor::Peers::iterator TlsAcceptor::continue_handshake(Peers::iterator peer) {
  peer->wants = peer->session.shake_hands();
  if (peer->wants == TlsSession::State::failed) {
    return unauthenticated_peers_.erase(peer);
  }
  if (peer->wants != TlsSession::State::done) {
    return std::next(peer);
  }
  admit_(std::move(peer->socket), std::move(peer->session));
  return unauthenticated_peers_.erase(peer);
}

void TlsAcceptor::make_room() {
  const auto silent = std::find_if(unauthenticated_peers_.begin(), unauthenticated_peers_.end(),
                                   [](const Peer& peer) { return !peer.spoke; });
  unauthenticated_peers_.erase(
      silent != unauthenticated_peers_.end() ? silent : unauthenticated_peers_.begin());
}

}  // namespace train::actors
