#include "actors/cluster/network/peer_acceptor.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <list>
#include <system_error>

#include "base/check.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using boost::system::error_code;

constexpr int kBacklog = 1024;
constexpr std::size_t kMostWaiting = 64;
constexpr auto kPatience = 2s;
constexpr auto kPauseWithoutDescriptor = 100ms;

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
      return failure(fmt::format("cannot listen on {}: {}", where,
                                 std::generic_category().message(error_number)));
  }
}

}  // namespace

Result<std::pair<Descriptor, std::uint16_t>> open_port(const std::string& host,
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

/// All of it on the loop's thread.
class PeerAcceptor::Port : public std::enable_shared_from_this<Port> {
 public:
  Port(const EventLoop& loop, Descriptor listening, Identity identity, Admit admit)
      : listening_(loop.context(), listening.release()),
        identity_(std::move(identity)),
        admit_(std::move(admit)) {}

  asio::awaitable<void> accept() {
    for (;;) {
      co_await listening_.async_wait(asio::posix::stream_descriptor::wait_read,
                                     asio::use_awaitable);
      // A bound, so that those who wait get their turn under a flood.
      for (std::size_t i = 0; i < kMostWaiting; ++i) {
        // Not by the library, whose sockets the processes that are started meanwhile inherit.
        Descriptor socket(
            ::accept4(listening_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
          const bool exhausted =
              errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
          if (exhausted) {
            co_await pause(kPauseWithoutDescriptor);
          }
          break;
        }
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
    tcp::socket* socket = nullptr;
    bool spoke = false;    ///< Has sent something, as a worker does at once.
    bool dropped = false;  ///< Is no longer among those that wait.
  };
  using Peers = std::list<std::shared_ptr<Peer>>;  // oldest first

  void take(Descriptor descriptor) {
    if (unauthenticated_peers_.size() == kMostWaiting) {
      const auto silent = std::find_if(unauthenticated_peers_.begin(), unauthenticated_peers_.end(),
                                       [](const auto& peer) { return !peer->spoke; });
      drop(silent != unauthenticated_peers_.end() ? silent : unauthenticated_peers_.begin());
    }
    tcp::socket socket(listening_.get_executor());
    error_code error;
    if (socket.assign(tcp::v4(), descriptor.get(), error)) {
      return;
    }
    (void)descriptor.release();
    socket.set_option(tcp::no_delay(true), error);
    unauthenticated_peers_.push_back(std::make_shared<Peer>());
    asio::co_spawn(listening_.get_executor(),
                   authenticate(shared_from_this(), unauthenticated_peers_.back(),
                                std::move(socket), std::chrono::steady_clock::now() + kPatience),
                   log_failure);
  }

  /// Its coroutine hears of it and ends.
  void drop(Peers::iterator peer) {
    (*peer)->dropped = true;
    if ((*peer)->socket != nullptr) {
      error_code ignored;
      (*peer)->socket->close(ignored);
    }
    unauthenticated_peers_.erase(peer);
  }

  static asio::awaitable<void> authenticate(std::shared_ptr<Port> port, std::shared_ptr<Peer> peer,
                                            tcp::socket socket, Deadline::Time deadline) {
    auto stream = co_await shake_hands(*port, *peer, std::move(socket), deadline);
    if (peer->dropped) {
      co_return;
    }
    port->unauthenticated_peers_.remove(peer);
    if (stream) {
      port->admit_(std::move(stream));
    }
  }

  static asio::awaitable<std::unique_ptr<SecureStream>> shake_hands(Port& port, Peer& peer,
                                                                    tcp::socket socket,
                                                                    Deadline::Time deadline) {
    {
      if (peer.dropped) {
        co_return nullptr;
      }
      peer.socket = &socket;
      const Deadline watch(socket, deadline);
      const auto [silent] = co_await socket.async_wait(tcp::socket::wait_read, use_tuple);
      if (silent) {
        peer.socket = nullptr;
        co_return nullptr;
      }
    }
    peer.spoke = true;
    auto stream = std::make_unique<SecureStream>(std::move(socket), *port.identity_);
    peer.socket = &stream->next_layer();
    const Deadline watch(stream->next_layer(), deadline);
    const auto [failed] = co_await stream->async_handshake(SecureStream::server, use_tuple);
    peer.socket = nullptr;
    co_return failed ? nullptr : std::move(stream);
  }

  asio::posix::stream_descriptor listening_;
  Identity identity_;
  Admit admit_;
  Peers unauthenticated_peers_;
};

PeerAcceptor::PeerAcceptor(const EventLoop& loop, Descriptor listening, Identity identity,
                           Admit admit)
    : port_(std::make_shared<Port>(loop, std::move(listening), std::move(identity),
                                   std::move(admit))),
      loop_(loop),
      accepting_(std::in_place, loop, port_->accept()) {}

PeerAcceptor::~PeerAcceptor() {
  accepting_.reset();
  call_on(loop_, [this] { port_->close(); });
}

}  // namespace train::actors
