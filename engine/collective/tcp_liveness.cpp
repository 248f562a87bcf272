#include "engine/collective/tcp_liveness.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

namespace train::engine {
namespace {

constexpr int kProbes = 3;  // that go unanswered within the limit, after as long a silence each

bool is_connected_tcp(int descriptor) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 ||
      protocol != IPPROTO_TCP) {
    return false;
  }
  sockaddr_storage peer = {};
  size = sizeof(peer);
  return ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

std::set<int> tcp_sockets() {
  std::set<int> sockets;
  std::error_code error;  // one that was closed meanwhile is none of them
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int descriptor = -1;
    std::from_chars(name.data(), name.data() + name.size(), descriptor);
    if (descriptor >= 0 && is_connected_tcp(descriptor)) {
      sockets.insert(descriptor);
    }
  }
  return sockets;
}

Status find_cut(int socket, std::chrono::seconds limit) {
  const auto seconds = static_cast<int>(limit.count());
  const int between = std::max(1, seconds / (kProbes + 1));
  const std::array<std::pair<std::pair<int, int>, int>, 5> options = {{
      {{SOL_SOCKET, SO_KEEPALIVE}, 1},
      {{IPPROTO_TCP, TCP_KEEPIDLE}, between},
      {{IPPROTO_TCP, TCP_KEEPINTVL}, between},
      {{IPPROTO_TCP, TCP_KEEPCNT}, kProbes},
      {{IPPROTO_TCP, TCP_USER_TIMEOUT}, seconds * 1000},  // of what was sent and not received
  }};
  for (const auto& [option, value] : options) {
    if (::setsockopt(socket, option.first, option.second, &value, sizeof(value)) != 0) {
      if (errno == EBADF || errno == ENOTSOCK) {
        return {};  // closed since it was seen: there is nothing to watch
      }
      return failure(fmt::format("a connection cannot be watched: {}", std::strerror(errno)));
    }
  }
  return {};
}

}  // namespace train::engine
