#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "actors/cluster/network/coroutines.hpp"
#include "actors/cluster/network/credentials.hpp"
#include "actors/cluster/network/endpoint.hpp"
#include "base/result.hpp"

// TLS 1.3 with certificates on both sides.
namespace train::actors {

using asio::ip::tcp;
using SecureStream = asio::ssl::stream<tcp::socket>;

enum class StreamEnd : std::uint8_t { head, worker };

/// Key, certificate and trust of one end. Not changed after load_identity().
using Identity = std::shared_ptr<asio::ssl::context>;

/// Blocks on the disk. Errors (user): a file is missing or invalid.
[[nodiscard]] Result<Identity> load_identity(const CredentialFiles& files, StreamEnd end);

/// Closes a socket at a deadline, which ends all waits on it; unless destroyed first.
class Deadline {
 public:
  using Time = std::chrono::steady_clock::time_point;
  Deadline(tcp::socket& socket, Time time);
  ~Deadline() { *socket_ = nullptr; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::shared_ptr<tcp::socket*> socket_;
  asio::steady_timer timer_;
};

/// Connects to a peer that proves to hold a head's certificate of this run, until `deadline`.
/// Errors, half a sentence each: its certificate is not of this run (user: no retry can succeed);
/// not connected (failure).
[[nodiscard]] asio::awaitable<Result<std::unique_ptr<SecureStream>>> connect_securely(
    Endpoint endpoint, Identity identity, Deadline::Time deadline);

/// Returns when the system has taken all `bytes` and `follows`. Errors (failure): the connection is
/// lost, or the peer did not read them within `patience`.
[[nodiscard]] asio::awaitable<Status> send_all(SecureStream& stream,
                                               std::span<const std::byte> bytes,
                                               std::chrono::milliseconds patience,
                                               std::span<const std::byte> follows = {});
/// Returns when all bytes have arrived; false: the connection is lost.
[[nodiscard]] asio::awaitable<bool> receive_all(SecureStream& stream, std::span<std::byte> bytes);

/// Sleeps for `time` on an end that only sends; false: the peer is gone, as it never sends.
[[nodiscard]] asio::awaitable<bool> rest(SecureStream& stream, std::chrono::milliseconds time);

}  // namespace train::actors
