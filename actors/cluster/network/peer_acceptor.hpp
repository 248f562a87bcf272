#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "actors/cluster/network/secure_stream.hpp"
#include "base/result.hpp"

namespace train::actors {

/// A socket that listens; `port` 0: any free one. Errors: port taken or not allowed, address not of
/// this node (user; name the keys of [parallel]).
[[nodiscard]] Result<tcp::acceptor> open_port(asio::io_context& context, const std::string& host,
                                              std::uint16_t port);

/// Takes a peer that holds a certificate of this run. Called on the loop's thread.
using AdmitPeer = std::function<void(std::unique_ptr<SecureStream>)>;

/// Stands before the actor system: accepts connections, shakes hands, and lets in only who holds a
/// certificate of this run. Whoever is silent, talks nonsense or holds no certificate is closed and
/// takes at most one of 64 slots for 2 s; before it has said something it costs a socket alone.
/// When all slots are taken, who has been silent longest makes room, or else who has waited
/// longest. For a Task, whose end closes the port and all who wait. REQUIRES: `listening` listens,
/// and is of the loop's context.
[[nodiscard]] asio::awaitable<void> accept_peers(tcp::acceptor listening, Identity identity,
                                                 AdmitPeer admit);

}  // namespace train::actors
