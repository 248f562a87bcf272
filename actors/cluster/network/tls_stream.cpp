#include "actors/cluster/network/tls_stream.hpp"

#include <poll.h>

namespace train::actors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kForever{24 * 365};

}  // namespace

Status TlsStream::wait(TlsSession::State state, Clock::time_point deadline) const {
  if (state == TlsSession::State::failed) {
    return failure("the connection is lost");
  }
  const short events = state == TlsSession::State::wants_write ? POLLOUT : POLLIN;
  switch (wait_ready(connection_.first.get(), events, deadline, stop_)) {
    case Waited::ready:
      return {};
    case Waited::stopped:
      return failure("stopped");
    case Waited::late:
      break;
  }
  return failure("no answer");
}

Status TlsStream::send(std::span<const std::byte> bytes, std::chrono::milliseconds patience) {
  while (!bytes.empty()) {
    std::size_t moved = 0;
    const auto state = connection_.second.write(bytes.data(), bytes.size(), moved);
    bytes = bytes.subspan(moved);
    if (state != TlsSession::State::done) {
      TRAIN_RETURN_IF_ERROR(wait(state, Clock::now() + patience));
    }
  }
  return {};
}

Status TlsStream::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    std::size_t moved = 0;
    const auto state = connection_.second.read(bytes.data(), bytes.size(), moved);
    bytes = bytes.subspan(moved);
    if (state != TlsSession::State::done) {
      TRAIN_RETURN_IF_ERROR(wait(state, Clock::now() + kForever));
    }
  }
  return {};
}

Status TlsStream::rest(std::chrono::milliseconds time) {
  switch (wait_ready(connection_.first.get(), POLLIN, Clock::now() + time, stop_)) {
    case Waited::late:
      return {};
    case Waited::stopped:
      return failure("stopped");
    case Waited::ready:
      break;
  }
  std::byte unexpected{};
  std::size_t moved = 0;
  const auto state = connection_.second.read(&unexpected, 1, moved);
  return state == TlsSession::State::wants_read ? Status() : failure("the connection is lost");
}

}  // namespace train::actors
