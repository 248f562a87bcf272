#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "actors/cluster/network/tls_connect.hpp"
#include "base/result.hpp"

namespace train::actors {

/// An authenticated connection that a thread of its own reads or writes.
///
/// Threading: one at a time; calls block. Ownership: of the connection. REQUIRES: this process
/// ignores SIGPIPE.
class TlsStream {
 public:
  /// `stop`: a descriptor; when it is readable every call ends.
  TlsStream(TlsConnection connection, int stop) : connection_(std::move(connection)), stop_(stop) {}

  /// Until the system has taken all bytes. Errors (failure): stopped, the connection is lost, or
  /// the peer took nothing for `patience`.
  [[nodiscard]] Status send(std::span<const std::byte> bytes, std::chrono::milliseconds patience);
  /// Until all bytes are there. Errors (failure): stopped, or the connection is lost.
  [[nodiscard]] Status receive(std::span<std::byte> bytes);
  /// For an end that only sends: does nothing for `time`. Errors (failure): stopped, or the peer is
  /// gone.
  [[nodiscard]] Status rest(std::chrono::milliseconds time);

 private:
  [[nodiscard]] Status wait(TlsSession::State state,
                            std::chrono::steady_clock::time_point deadline) const;

  TlsConnection connection_;
  int stop_;
};

}  // namespace train::actors
