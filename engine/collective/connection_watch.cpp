#include "engine/collective/connection_watch.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.hpp"

namespace train::engine {
namespace {

constexpr std::uint64_t kEnd = 0;  // of no connection

/// Edge-triggered: an event is reported once, not again and again until it is read.
epoll_event event_of(std::uint64_t id, const ConnectionWatch::Asked& asked) {
  epoll_event event = {};
  event.events =
      EPOLLRDHUP | EPOLLET | (asked.to_read ? EPOLLIN : 0U) | (asked.to_write ? EPOLLOUT : 0U);
  event.data.u64 = id;
  return event;
}

}  // namespace

Result<std::shared_ptr<ConnectionWatch>> ConnectionWatch::make() {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  Descriptor end(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kEnd;
  if (!epoll || !end || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, end.get(), &event) != 0) {
    return failure(fmt::format("connections cannot be watched: {}", std::strerror(errno)));
  }
  return std::shared_ptr<ConnectionWatch>(new ConnectionWatch(std::move(epoll), std::move(end)));
}

ConnectionWatch::ConnectionWatch(Descriptor epoll, Descriptor end)
    : epoll_(std::move(epoll)), end_(std::move(end)), thread_([this] { loop(); }) {}

ConnectionWatch::~ConnectionWatch() {
  const std::uint64_t one = 1;
  const ssize_t written = ::write(end_.get(), &one, sizeof(one));
  TRAIN_CHECK(written == sizeof(one), "an eventfd that takes nothing");
  thread_.join();
}

Status ConnectionWatch::add(int socket, Changed changed) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = ++last_id_;
  epoll_event event = event_of(id, {});
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    return failure(fmt::format("a connection cannot be watched: {}", std::strerror(errno)));
  }
  watched_[socket] = {.id = id, .changed = std::move(changed)};
  by_id_[id] = socket;
  return {};
}

void ConnectionWatch::ask(int socket, const Asked& asked) {
  const std::lock_guard lock(mutex_);
  epoll_event event = event_of(watched_.at(socket).id, asked);
  const int changed = ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, socket, &event);
  TRAIN_CHECK(changed == 0, "{}", std::strerror(errno));
}

void ConnectionWatch::remove(int socket) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(socket);
  if (found != watched_.end()) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
    by_id_.erase(found->second.id);
    watched_.erase(found);
  }
}

void ConnectionWatch::tell(std::uint64_t id, bool over) {
  const std::lock_guard lock(mutex_);
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    watched_.at(found->second).changed(over);
  }
}

void ConnectionWatch::loop() {
  std::array<epoll_event, 16> events = {};
  while (true) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    TRAIN_CHECK(count >= 0 || errno == EINTR, "{}", std::strerror(errno));
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if (event.data.u64 == kEnd) {
        return;
      }
      tell(event.data.u64, (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
    }
  }
}

}  // namespace train::engine
