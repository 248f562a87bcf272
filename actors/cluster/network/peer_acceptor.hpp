#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/cluster/network/secure_stream.hpp"
#include "base/result.hpp"

namespace train::actors {

/// Listening socket; `port` 0: any free one. Errors: port taken or not allowed, address not of this
/// node (user; names the keys of [parallel]).
[[nodiscard]] Result<tcp::acceptor> open_port(asio::io_context& context, const std::string& host,
                                              std::uint16_t port);

/// Admits a peer with a certificate of this run. Called on the loop's thread.
using AdmitPeer = std::function<void(std::unique_ptr<SecureStream>)>;

/// Accepts connections, performs handshakes, and admits only peers with a certificate of this run.
/// A peer that is silent, malformed or without a certificate is closed and holds one of 64 slots
/// for at most 2 s; before its first byte it costs only a socket. If all slots are taken, the peer
/// that has been silent longest is dropped, otherwise the one that has waited longest. For a Task,
/// whose end closes the port and all waiting peers. REQUIRES: `listening` is listening, and belongs
/// to the loop's context.
[[nodiscard]] asio::awaitable<void> accept_peers(tcp::acceptor listening, Identity identity,
                                                 AdmitPeer admit);

}  // namespace train::actors
