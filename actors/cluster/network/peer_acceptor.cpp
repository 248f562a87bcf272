#include "actors/cluster/network/peer_acceptor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/system/errc.hpp>
#include <tuple>
#include <utility>
#include <vector>

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
  if (error == asio::error::address_in_use || error == asio::error::access_denied) {
    return user_error(fmt::format("parallel.port = {}: {}, or 0 for any free one", port,
                                  error == asio::error::address_in_use
                                      ? where + " is taken; choose another"
                                      : "not allowed to listen there; choose one above 1023"));
  }
  if (error == boost::system::errc::address_not_available) {
    return user_error(fmt::format(
        "parallel.interface: {} is not an address of this node; leave it empty for one node",
        address));
  }
  return failure(fmt::format("cannot listen on {}: {}", where, error.message()));
}

struct Peer {
  tcp::socket socket;  ///< Used until the peer has sent something, as workers do.
  std::unique_ptr<SecureStream> stream = {};  ///< Used from then on.
};

/// Peers before admission, oldest first. Used only on the loop's thread.
struct Door {
  Identity identity;
  AdmitPeer admit;
  std::vector<std::shared_ptr<Peer>> peers = {};

  /// Cancels the peer's coroutine, which then ends.
  void drop(std::vector<std::shared_ptr<Peer>>::iterator peer) {
    error_code ignored;
    ((*peer)->stream ? (*peer)->stream->next_layer() : (*peer)->socket).close(ignored);
    peers.erase(peer);
  }

  void make_room() {
    if (peers.size() == kMostWaiting) {
      const auto silent =
          std::find_if(peers.begin(), peers.end(), [](const auto& peer) { return !peer->stream; });
      drop(silent != peers.end() ? silent : peers.begin());
    }
  }
};

asio::awaitable<void> authenticate(std::shared_ptr<Door> door, std::shared_ptr<Peer> peer,
                                   Deadline::Time deadline) {
  error_code failed;
  {
    const Deadline watch(peer->socket, deadline);
    std::tie(failed) = co_await peer->socket.async_wait(tcp::socket::wait_read, kUseTuple);
  }
  if (!failed) {
    peer->stream = std::make_unique<SecureStream>(std::move(peer->socket), *door->identity);
    const Deadline watch(peer->stream->next_layer(), deadline);
    std::tie(failed) = co_await peer->stream->async_handshake(SecureStream::server, kUseTuple);
  }
  const bool dropped = std::erase(door->peers, peer) == 0;
  if (!failed && !dropped) {
    door->admit(std::move(peer->stream));
  }
}

}  // namespace

Result<tcp::acceptor> open_port(asio::io_context& context, const std::string& host,
                                std::uint16_t port) {
  error_code error;
  const auto address = asio::ip::make_address_v4(host, error);
  if (error) {
    return user_error(fmt::format("parallel.interface: '{}' is not an IPv4 address", host));
  }
  tcp::acceptor listening(context);
  if (listening.open(tcp::v4(), error) ||
      listening.set_option(tcp::acceptor::reuse_address(true), error) ||
      listening.bind({address, port}, error) || listening.listen(kBacklog, error)) {
    return cannot_listen(host, port, error);
  }
  return listening;
}

asio::awaitable<void> accept_peers(tcp::acceptor listening, Identity identity, AdmitPeer admit) {
  const auto door =
      std::make_shared<Door>(Door{.identity = std::move(identity), .admit = std::move(admit)});
  const std::shared_ptr<void> closed(nullptr, [door](void*) {
    while (!door->peers.empty()) {
      door->drop(door->peers.begin());
    }
  });
  for (;;) {
    auto [error, socket] = co_await listening.async_accept(kUseTuple);
    if (error) {  // Out of descriptors, or the peer has already gone.
      co_await pause(kPauseWithoutDescriptor);
      continue;
    }
    door->make_room();
    socket.set_option(tcp::no_delay(true), error);
    door->peers.push_back(std::make_shared<Peer>(Peer{.socket = std::move(socket)}));
    asio::co_spawn(
        listening.get_executor(),
        authenticate(door, door->peers.back(), std::chrono::steady_clock::now() + kPatience),
        log_failure);
  }
}

}  // namespace train::actors
