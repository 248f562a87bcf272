#include "actors/cluster/network/listen.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

namespace train::actors {
namespace {

constexpr int kBacklog = 1024;

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

Error cannot_listen(const std::string& address, std::uint16_t port, int error_number) {
  const std::string where = fmt::format("{}:{}", address, port);
  switch (error_number) {
    case EADDRINUSE:
      return user_error(fmt::format(
          "parallel.port = {}: {} is taken; choose another, or 0 for any free one", port, where));
    case EACCES:
      return user_error(
          fmt::format("parallel.port = {}: not allowed to listen there; choose one above 1023, or "
                      "0 for any free one",
                      port));
    case EADDRNOTAVAIL:
      return user_error(
          fmt::format("parallel.interface: {} is no address of this node; leave it "
                      "empty for one node",
                      address));
    default:
      return failure(fmt::format("cannot listen on {}: {}", where, text_of(error_number)));
  }
}

}  // namespace

Result<std::pair<Descriptor, std::uint16_t>> listen_on(const std::string& host,
                                                       std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return user_error(fmt::format("parallel.interface: '{}' is no IPv4 address", host));
  }
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(socket.get(), generic, size) != 0 || ::listen(socket.get(), kBacklog) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    return cannot_listen(host, port, errno);
  }
  return std::pair(std::move(socket), ntohs(address.sin_port));
}

}  // namespace train::actors
