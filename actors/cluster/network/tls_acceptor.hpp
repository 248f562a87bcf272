#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <thread>

#include "actors/cluster/network/tls.hpp"
#include "base/descriptor.hpp"
#include "base/wake.hpp"

namespace train::actors {

/// Stands before the actor system: accepts connections, shakes hands, and lets in only who holds a
/// certificate of this run. Whoever is silent, talks nonsense or holds no certificate is closed and
/// costs at most one of `most_waiting` places for `patience`. When all are taken, who has been
/// silent longest makes room, or else who has waited longest.
///
/// Threading: one thread of its own, which alone calls `admit`.
class TlsAcceptor {
 public:
  struct Options {
    std::size_t most_waiting = 64;
    std::chrono::milliseconds patience{2000};
  };
  using Admit = std::function<void(Descriptor, TlsSession)>;

  /// REQUIRES: `listening` listens.
  TlsAcceptor(Descriptor listening, TlsContext context, Options options, Admit admit);
  /// Closes the port and all who wait.
  ~TlsAcceptor();
  TlsAcceptor(const TlsAcceptor&) = delete;
  TlsAcceptor& operator=(const TlsAcceptor&) = delete;

  [[nodiscard]] std::uint64_t admitted() const { return admitted_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }

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
  Peers::iterator go_on(Peers::iterator peer);
  Peers::iterator refuse(Peers::iterator peer);
  void make_room();

  Descriptor listening_;
  TlsContext context_;
  Options options_;
  Admit admit_;
  Wake wake_;
  std::atomic<std::uint64_t> admitted_{0};
  std::atomic<std::uint64_t> refused_{0};
  Peers unauthenticated_peers_;
  bool exhausted_ = false;  ///< No descriptor was free at the last try.
  std::thread thread_;      // last: it uses all of the above
};

}  // namespace train::actors
