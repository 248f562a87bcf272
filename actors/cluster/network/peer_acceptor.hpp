#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/cluster/network/secure_stream.hpp"
#include "base/result.hpp"

namespace train::actors {

/// A socket that listens; `port` 0: any free one. Errors: port taken or not allowed, address not of
/// this node (user; name the keys of [parallel]).
[[nodiscard]] Result<tcp::acceptor> open_port(asio::io_context& context, const std::string& host,
                                              std::uint16_t port);

/// Stands before the actor system: accepts connections, shakes hands, and lets in only who holds a
/// certificate of this run. Whoever is silent, talks nonsense or holds no certificate is closed and
/// takes at most one of 64 slots for 2 s; before it has said something it costs a socket alone.
/// When all slots are taken, who has been silent longest makes room, or else who has waited
/// longest.
///
/// Threading: `admit` is called on the loop's thread; this not.
class PeerAcceptor {
 public:
  using Admit = std::function<void(std::unique_ptr<SecureStream>)>;

  /// REQUIRES: `listening` listens, and is of the loop's context.
  PeerAcceptor(const EventLoop& loop, tcp::acceptor listening, Identity identity, Admit admit);
  /// Closes the port and all who wait; `admit` is not called any more.
  ~PeerAcceptor();
  PeerAcceptor(const PeerAcceptor&) = delete;
  PeerAcceptor& operator=(const PeerAcceptor&) = delete;

 private:
  class Port;
  std::shared_ptr<Port> port_;
  const EventLoop& loop_;
  std::optional<Task> accepting_;
};

}  // namespace train::actors
