#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "actors/cluster/network/tls.hpp"
#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "base/wake.hpp"

namespace train::actors {

/// A socket that listens, does not block, and its port; `port` 0: any free one. Errors: port taken
/// or not allowed, address not of this node (user; name the keys of [parallel]).
[[nodiscard]] Result<std::pair<Descriptor, std::uint16_t>> listen_on(const std::string& host,
                                                                     std::uint16_t port);

/// Stands before the actor system: accepts connections, shakes hands, and lets in only who holds a
/// certificate of this run. Whoever is silent, talks nonsense or holds no certificate is closed and
/// takes at most one of 64 slots for 2 s. When all are taken, who has been
/// silent longest makes room, or else who has waited longest.
///
/// Threading: one thread of its own, which alone calls `admit`.
class TlsAcceptor {
 public:
  using Admit = std::function<void(Descriptor, TlsSession)>;

  /// REQUIRES: `listening` listens.
  TlsAcceptor(Descriptor listening, TlsContext context, Admit admit);
  /// Closes the port and all who wait.
  ~TlsAcceptor();
  TlsAcceptor(const TlsAcceptor&) = delete;
  TlsAcceptor& operator=(const TlsAcceptor&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  struct Peer {
    Descriptor socket;
    TlsSession session;
    Clock::time_point deadline;
    TlsSession::State wants = TlsSession::State::wants_read;
    bool spoke = false;  ///< Has sent something, as a worker does at once.
  };
  using Peers = std::list<Peer>;  // oldest first

  void serve();
  [[nodiscard]] int wait_ms() const;
  void accept_all();
  /// The one that follows in the list.
  Peers::iterator continue_handshake(Peers::iterator peer);
  void make_room();

  Descriptor listening_;
  TlsContext context_;
  Admit admit_;
  Wake wake_;
  Peers unauthenticated_peers_;
  bool exhausted_ = false;  ///< No descriptor was free at the last try.
  std::thread thread_;      // last: it uses all of the above
};

}  // namespace train::actors
