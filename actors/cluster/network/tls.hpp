#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/node_position.hpp"
#include "base/descriptor.hpp"
#include "base/result.hpp"

struct ssl_st;      // OpenSSL's SSL
struct ssl_ctx_st;  // OpenSSL's SSL_CTX

// TLS 1.3 with certificates on both sides, over sockets that do not block.
namespace train::actors {

enum class TlsEnd : std::uint8_t { head, worker };

/// One end's key, certificate and trust, read from files once. Thread-safe after creation.
class TlsContext {
 public:
  /// Blocks on the disk. Errors (user): a file is missing or is not what its name says.
  [[nodiscard]] static Result<TlsContext> load(const CredentialFiles& files, TlsEnd end);

  [[nodiscard]] ssl_ctx_st* get() const { return context_.get(); }
  [[nodiscard]] TlsEnd end() const { return end_; }

 private:
  TlsContext(std::shared_ptr<ssl_ctx_st> context, TlsEnd end)
      : context_(std::move(context)), end_(end) {}

  std::shared_ptr<ssl_ctx_st> context_;
  TlsEnd end_;
};

/// One connection. Does not own the socket. Threading: one at a time. No call blocks.
class TlsSession {
 public:
  enum class State : std::uint8_t { done, wants_read, wants_write, failed };

  /// REQUIRES: `socket` is connected, does not block, and outlives this.
  TlsSession(const TlsContext& context, int socket);

  /// Goes on with the handshake; done: the peer has proved that this run's authority knows it (at
  /// the worker's end: the head has; the head may still refuse the worker).
  [[nodiscard]] State shake_hands();

  /// Why the peer's certificate was refused; empty if it was not.
  [[nodiscard]] std::string refusal() const;

  /// Moves at most `size` bytes; `moved` says how many. done: more may follow at once.
  [[nodiscard]] State read(void* bytes, std::size_t size, std::size_t& moved);
  [[nodiscard]] State write(const void* bytes, std::size_t size, std::size_t& moved);

  /// Bytes that have been taken off the socket and not yet been read.
  [[nodiscard]] std::size_t pending() const;

 private:
  struct Free {
    void operator()(ssl_st* session) const noexcept;
  };
  [[nodiscard]] State judge(int result) const;

  std::unique_ptr<ssl_st, Free> session_;
};

using TlsConnection = std::pair<Descriptor, TlsSession>;

/// What an Error of the world does not say: whether it is worth another try.
struct TlsRefusal {
  bool final = false;  ///< The peer's certificate is not of this run.
};

/// A connected socket whose peer has proved that it holds a head's certificate of this run. Blocks
/// until then, `deadline`, or `stop` (a descriptor; -1: none) is readable. Errors (failure): why
/// not, a half sentence.
[[nodiscard]] Result<TlsConnection> connect_tls(const Endpoint& endpoint, const TlsContext& context,
                                                std::chrono::steady_clock::time_point deadline,
                                                TlsRefusal& refusal, int stop = -1);

enum class Waited : std::uint8_t { ready, stopped, late };

/// Waits until `socket` is ready for `events` (of poll), `stop` is readable, or `deadline`.
Waited wait_ready(int socket, short events, std::chrono::steady_clock::time_point deadline,
                  int stop = -1);

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
