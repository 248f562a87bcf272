#include "actors/cluster/network/peer_acceptor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/system/errc.hpp>
#include <list>

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using boost::system::error_code;

constexpr int kBacklog = 1024;
constexpr std::size_t kMostWaiting = 64;
constexpr auto kPatience = 2s;
constexpr auto kPauseWithoutDescriptor = 100ms;

Error cannot_listen(const std::string& address, std::uint16_t port, const error_code& error) {
  const std::string where = fmt::format("{}:{}", address, port);
  if (error == asio::error::address_in_use) {
    return user_error(fmt::format(
        "parallel.port = {}: {} is taken; choose another, or 0 for any free one", port, where));
  }
  if (error == asio::error::access_denied) {
    return user_error(
        fmt::format("parallel.port = {}: not allowed to listen there; choose one above 1023, or "
                    "0 for any free one",
                    port));
  }
  if (error == boost::system::errc::address_not_available) {
    return user_error(
        fmt::format("parallel.interface: {} is no address of this node; leave it "
                    "empty for one node",
                    address));
  }
  return failure(fmt::format("cannot listen on {}: {}", where, error.message()));
}

}  // namespace

Result<tcp::acceptor> open_port(asio::io_context& context, const std::string& host,
                                std::uint16_t port) {
  error_code error;
  const auto address = asio::ip::make_address_v4(host, error);
  if (error) {
    return user_error(fmt::format("parallel.interface: '{}' is no IPv4 address", host));
  }
  tcp::acceptor listening(context);
  if (listening.open(tcp::v4(), error) ||
      listening.set_option(tcp::acceptor::reuse_address(true), error) ||
      listening.bind({address, port}, error) || listening.listen(kBacklog, error)) {
    return cannot_listen(host, port, error);
  }
  return listening;
}

/// All of it on the loop's thread.
class PeerAcceptor::Port : public std::enable_shared_from_this<Port> {
 public:
  Port(tcp::acceptor listening, Identity identity, Admit admit)
      : listening_(std::move(listening)),
        identity_(std::move(identity)),
        admit_(std::move(admit)) {}

  asio::awaitable<void> accept() {
    for (;;) {
      auto [error, socket] = co_await listening_.async_accept(use_tuple);
      if (error) {  // no descriptor is left, or the peer has gone already
        co_await pause(kPauseWithoutDescriptor);
      } else {
        take(std::move(socket));
      }
    }
  }

  void close() {
    admit_ = {};
    while (!unauthenticated_peers_.empty()) {
      drop(unauthenticated_peers_.begin());
    }
    error_code ignored;
    listening_.close(ignored);
  }

 private:
  struct Peer {
    tcp::socket socket;  ///< Until it has sent something, as a worker does at once.
    std::unique_ptr<SecureStream> stream = {};  ///< From then on.
    bool dropped = false;                       ///< Is no longer among those that wait.
  };
  using Peers = std::list<std::shared_ptr<Peer>>;  // oldest first

  void take(tcp::socket socket) {
    if (unauthenticated_peers_.size() == kMostWaiting) {
      const auto silent = std::find_if(unauthenticated_peers_.begin(), unauthenticated_peers_.end(),
                                       [](const auto& peer) { return !peer->stream; });
      drop(silent != unauthenticated_peers_.end() ? silent : unauthenticated_peers_.begin());
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    unauthenticated_peers_.push_back(std::make_shared<Peer>(Peer{.socket = std::move(socket)}));
    asio::co_spawn(listening_.get_executor(),
                   authenticate(shared_from_this(), unauthenticated_peers_.back(),
                                std::chrono::steady_clock::now() + kPatience),
                   log_failure);
  }

  /// Its coroutine hears of it and ends.
  void drop(Peers::iterator peer) {
    Peer& dropped = **peer;
    dropped.dropped = true;
    error_code ignored;
    (dropped.stream ? dropped.stream->next_layer() : dropped.socket).close(ignored);
    unauthenticated_peers_.erase(peer);
  }

  static asio::awaitable<void> authenticate(std::shared_ptr<Port> port, std::shared_ptr<Peer> peer,
                                            Deadline::Time deadline) {
    bool good = false;
    {
      const Deadline watch(peer->socket, deadline);
      const auto [silent] = co_await peer->socket.async_wait(tcp::socket::wait_read, use_tuple);
      good = !silent && !peer->dropped;
    }
    if (good) {
      peer->stream = std::make_unique<SecureStream>(std::move(peer->socket), *port->identity_);
      const Deadline watch(peer->stream->next_layer(), deadline);
      const auto [failed] = co_await peer->stream->async_handshake(SecureStream::server, use_tuple);
      good = !failed;
    }
    if (peer->dropped) {
      co_return;
    }
    port->unauthenticated_peers_.remove(peer);
    if (good) {
      port->admit_(std::move(peer->stream));
    }
  }

  tcp::acceptor listening_;
  Identity identity_;
  Admit admit_;
  Peers unauthenticated_peers_;
};

PeerAcceptor::PeerAcceptor(const EventLoop& loop, tcp::acceptor listening, Identity identity,
                           Admit admit)
    : port_(std::make_shared<Port>(std::move(listening), std::move(identity), std::move(admit))),
      loop_(loop),
      accepting_(std::in_place, loop, port_->accept()) {}

PeerAcceptor::~PeerAcceptor() {
  accepting_.reset();
  call_on(loop_, [this] { port_->close(); });
}

}  // namespace train::actors
