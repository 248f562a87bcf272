#pragma once

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <optional>

#include "actors/cluster/network/endpoint.hpp"
#include "base/process/descriptor.hpp"
#include "tests/support/harness/hang_limit.hpp"

// Unauthorized peers of the control port.
namespace train::test {

/// Connects; the result is closed on failure. Usable on any thread.
inline Descriptor connect_to(const actors::Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    socket.reset();
  }
  return socket;
}

/// Number of bytes until the peer closes; nullopt if it has not after `limit`.
inline std::optional<std::size_t> read_to_end(const Descriptor& socket,
                                              std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::size_t count = 0;
  char piece[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd watched{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&watched, 1, static_cast<int>(left.count())) <= 0) {
      return std::nullopt;
    }
    const ssize_t got = ::recv(socket.get(), piece, sizeof(piece), 0);
    if (got <= 0) {
      return count;
    }
    count += static_cast<std::size_t>(got);
  }
}

/// Connects as a TLS client with the certificate and key in the file `identity` (or none), trusting
/// any server. True: the head has sent data after the handshake, so it has accepted the client.
inline bool tls_gets_in(const actors::Endpoint& endpoint, const char* identity) {
  const Descriptor socket = connect_to(endpoint);
  const timeval patience{.tv_sec = hang_limit.count(), .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_method()),
                                                             SSL_CTX_free);
  if (identity != nullptr) {
    REQUIRE(SSL_CTX_use_certificate_file(context.get(), identity, SSL_FILETYPE_PEM) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey_file(context.get(), identity, SSL_FILETYPE_PEM) == 1);
  }
  const std::unique_ptr<SSL, void (*)(SSL*)> session(SSL_new(context.get()), SSL_free);
  SSL_set_fd(session.get(), socket.get());
  char byte = 0;
  return SSL_connect(session.get()) == 1 && SSL_read(session.get(), &byte, 1) == 1;
}

}  // namespace train::test
