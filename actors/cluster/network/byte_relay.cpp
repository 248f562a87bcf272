#include "actors/cluster/network/byte_relay.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>
#include <vector>

namespace train::actors {
namespace {

using boost::system::error_code;
using LocalSocket = asio::local::stream_protocol::socket;

constexpr std::size_t kPiece = 16384;  // One TLS record.

struct Relay {
  std::unique_ptr<SecureStream> secure;
  LocalSocket local;

  void close() {
    error_code ignored;
    secure->next_layer().close(ignored);
    local.close(ignored);
  }
};

/// Copies bytes one way until either side is gone; true: the sender has ended.
template <class From, class To>
asio::awaitable<bool> copy(From& from, To& to) {
  std::vector<char> piece(kPiece);
  for (;;) {
    const auto [ended, size] = co_await from.async_read_some(asio::buffer(piece), kUseTuple);
    if (ended) {
      co_return true;
    }
    const auto [failed, sent] =
        co_await asio::async_write(to, asio::buffer(piece.data(), size), kUseTuple);
    if (failed) {
      co_return false;
    }
  }
}

/// `held`: keeps the loop alive, so that bytes written before the owner closed are still sent.
asio::awaitable<void> send(std::shared_ptr<Relay> relay,
                           [[maybe_unused]] std::shared_ptr<void> held) {
  if (co_await copy(relay->local, *relay->secure)) {
    error_code ignored;  // The peer closes when it has read the end.
    relay->secure->next_layer().shutdown(tcp::socket::shutdown_send, ignored);
  } else {
    relay->close();
  }
}

asio::awaitable<void> receive(std::shared_ptr<Relay> relay) {
  co_await copy(*relay->secure, relay->local);
  relay->close();
}

}  // namespace

Result<Descriptor> relay_bytes(const EventLoop& loop, std::unique_ptr<SecureStream> stream) {
  LocalSocket owners(loop.context());
  const auto relay = std::make_shared<Relay>(Relay{std::move(stream), LocalSocket(loop.context())});
  error_code error;
  if (asio::local::connect_pair(owners, relay->local, error) ||
      owners.native_non_blocking(true, error)) {
    return failure(error.message());
  }
  asio::co_spawn(loop.context(), send(relay, loop.hold()), log_failure);
  asio::co_spawn(loop.context(), receive(relay), log_failure);
  return Descriptor(owners.release());
}

}  // namespace train::actors
