#include "actors/cluster/network/tls_acceptor.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/check.hpp"

namespace train::actors {
namespace {

constexpr int kRest_ms = 100;  // without a free descriptor

short events_of(TlsSession::State state) {
  return state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
}

}  // namespace

TlsAcceptor::TlsAcceptor(Descriptor listening, TlsContext context, Options options, Admit admit)
    : listening_(std::move(listening)),
      context_(std::move(context)),
      options_(options),
      admit_(std::move(admit)) {
  TRAIN_CHECK(options_.most_waiting > 0);
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
        peer = go_on(peer);
      } else if (peer->deadline <= now) {
        peer = refuse(peer);
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
  for (std::size_t i = 0; i < options_.most_waiting; ++i) {
    Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      exhausted_ = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      return;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (unauthenticated_peers_.size() == options_.most_waiting) {
      make_room();
    }
    TlsSession session(context_, socket.get());
    unauthenticated_peers_.push_back({.socket = std::move(socket),
                                      .session = std::move(session),
                                      .deadline = Clock::now() + options_.patience});
    go_on(std::prev(unauthenticated_peers_.end()));
  }
}

TlsAcceptor::Peers::iterator TlsAcceptor::go_on(Peers::iterator peer) {
  peer->wants = peer->session.shake_hands();
  if (peer->wants == TlsSession::State::failed) {
    return refuse(peer);
  }
  if (peer->wants != TlsSession::State::done) {
    return std::next(peer);
  }
  ++admitted_;
  admit_(std::move(peer->socket), std::move(peer->session));
  return unauthenticated_peers_.erase(peer);
}

void TlsAcceptor::make_room() {
  const auto silent = std::find_if(unauthenticated_peers_.begin(), unauthenticated_peers_.end(),
                                   [](const Peer& peer) { return !peer.spoke; });
  refuse(silent != unauthenticated_peers_.end() ? silent : unauthenticated_peers_.begin());
}

TlsAcceptor::Peers::iterator TlsAcceptor::refuse(Peers::iterator peer) {
  ++refused_;
  return unauthenticated_peers_.erase(peer);
}

}  // namespace train::actors
