#include "engine/collective/gloo_watch.hpp"

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <exception>
#include <limits>
#include <utility>

#include "engine/collective/gloo_text.hpp"

namespace train::engine {
namespace {

constexpr std::uint64_t kFarewellSlot = std::numeric_limits<std::uint64_t>::max();
constexpr auto kFarewellLimit = std::chrono::milliseconds(50);
/// Silence is no loss here; Gloo wants a limit.
constexpr auto kForever = std::chrono::hours(24 * 365 * 10);

}  // namespace

GlooWatch::GlooWatch(gloo::Context& context, Changed changed)
    : rank_(context.rank),
      changed_(std::move(changed)),
      farewells_(as_index(context.size), 0),
      buffer_(context.createUnboundBuffer(nullptr, std::numeric_limits<std::size_t>::max())) {
  for (int peer = 0; peer < context.size; ++peer) {
    if (peer != rank_) {
      buffer_->recv(peer, kFarewellSlot,
                    reinterpret_cast<std::uintptr_t>(&farewells_[as_index(peer)]), 1);
    }
  }
  thread_ = std::thread([this] { loop(); });
}

GlooWatch::~GlooWatch() { stop(); }

void GlooWatch::stop() {
  if (thread_.joinable()) {
    ending_.store(true);
    buffer_->abortWaitRecv();
    thread_.join();
  }
}

void GlooWatch::loop() {
  while (!ending_.load()) {
    try {
      if (!buffer_->waitRecv(nullptr, kForever)) {
        continue;  // the end
      }
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      loss_ = without_place(error.what());
      lost_.store(true, std::memory_order_release);
    }
    changed_(lost());
    if (lost()) {
      return;  // from here on every wait would say the same
    }
  }
}

std::string GlooWatch::loss() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

// The byte is written by the kernel, for a thread of Gloo; a sanitizer knows nothing of that order.
[[gnu::no_sanitize_thread]] bool GlooWatch::has_left(int peer) const {
  return __atomic_load_n(&farewells_[as_index(peer)], __ATOMIC_ACQUIRE) != 0;
}

void GlooWatch::say_farewell() {
  std::size_t said = 0;
  for (std::size_t peer = 0; peer < farewells_.size(); ++peer) {
    try {
      if (peer != as_index(rank_)) {
        buffer_->send(static_cast<int>(peer), kFarewellSlot,
                      reinterpret_cast<std::uintptr_t>(&farewell_), 1);
        ++said;
      }
    } catch (const std::exception&) {
      // It has gone already.
    }
  }
  try {
    while (said > 0) {
      said -= buffer_->waitSend(nullptr, kFarewellLimit) ? 1 : 0;
    }
  } catch (const std::exception&) {
    // Its receive has been posted since it connected: one that has not taken a byte by now is lost.
  }
}

}  // namespace train::engine
