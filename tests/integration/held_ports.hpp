#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstddef>

namespace train::test {

/// Ports of this machine that are nobody else's while the object lives: its sockets are bound to
/// them, and listen to nothing. A daemon that sets SO_REUSEADDR, as Slurm's do, may listen there.
template <std::size_t N>
class HeldPorts {
 public:
  HeldPorts() {
    for (std::size_t i = 0; i < N; ++i) {
      sockets_[i] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const int reuse = 1;
      REQUIRE(::setsockopt(sockets_[i], SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof(address);
      auto* any = reinterpret_cast<sockaddr*>(&address);
      REQUIRE(::bind(sockets_[i], any, size) == 0);
      REQUIRE(::getsockname(sockets_[i], any, &size) == 0);
      ports_[i] = ntohs(address.sin_port);
    }
  }
  HeldPorts(const HeldPorts&) = delete;
  HeldPorts& operator=(const HeldPorts&) = delete;
  ~HeldPorts() {
    for (const int socket : sockets_) {
      ::close(socket);
    }
  }

  [[nodiscard]] int operator[](std::size_t i) const { return ports_[i]; }

 private:
  std::array<int, N> ports_{};
  std::array<int, N> sockets_{};
};

}  // namespace train::test
