#include "actors/cluster/network/tls_connect.hpp"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <system_error>

namespace train::actors {
namespace {

using Clock = std::chrono::steady_clock;

int until_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(
      std::clamp<std::int64_t>(left, 0, std::numeric_limits<std::int32_t>::max()));
}

Status connect_socket(int socket, const Endpoint& endpoint, Clock::time_point deadline, int stop) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  if (::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr) != 1) {
    return failure("not an IPv4 address");
  }
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return {};
  }
  if (errno != EINPROGRESS) {
    return failure(std::generic_category().message(errno));
  }
  if (wait_ready(socket, POLLOUT, deadline, stop) != Waited::ready) {
    return failure("no answer");
  }
  int failed = 0;
  socklen_t size = sizeof(failed);
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failed, &size);
  return failed == 0 ? Status() : failure(std::generic_category().message(failed));
}

}  // namespace

Waited wait_ready(int socket, short events, Clock::time_point deadline, int stop) {
  std::array<pollfd, 2> watched = {{{.fd = socket, .events = events, .revents = 0},
                                    {.fd = stop, .events = POLLIN, .revents = 0}}};
  int result = -1;
  do {
    result = ::poll(watched.data(), watched.size(), until_ms(deadline));
  } while (result < 0 && errno == EINTR);
  return result <= 0 ? Waited::late : watched[1].revents != 0 ? Waited::stopped : Waited::ready;
}

Result<TlsConnection> connect_tls(const Endpoint& endpoint, const TlsContext& context,
                                  Clock::time_point deadline, TlsRefusal& refusal, int stop) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  TRAIN_RETURN_IF_ERROR(connect_socket(socket.get(), endpoint, deadline, stop));
  TlsSession session(context, socket.get());
  for (;;) {
    const TlsSession::State state = session.shake_hands();
    if (state == TlsSession::State::done) {
      return TlsConnection(std::move(socket), std::move(session));
    }
    if (state == TlsSession::State::failed) {
      refusal.final = !session.refusal().empty();
      return failure(refusal.final ? "its certificate is not of this run: " + session.refusal()
                                   : "it closed the connection while shaking hands");
    }
    const short events = state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
    if (wait_ready(socket.get(), events, deadline, stop) != Waited::ready) {
      return failure("it is silent");
    }
  }
}

}  // namespace train::actors
