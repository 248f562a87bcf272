#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "engine/collective/exchange_header.hpp"
#include "engine/collective/tcp_link.hpp"

// An exchange with ranks on the same machine.

namespace train::engine {

void TcpLink::set_local(std::size_t channel, const LocalRanks& local) {
  const auto is_there = [](const std::shared_ptr<InboxMemory>& inbox) { return inbox != nullptr; };
  if (!local.own || std::none_of(local.inboxes.begin(), local.inboxes.end(), is_there)) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    inbox_.emplace(rank_, channel, local.own, local.inboxes);
  }
  std::vector<const std::atomic<std::uint64_t>*> tickets;
  for (int peer = 0; peer < world_size_; ++peer) {
    tickets.push_back(inbox_->reaches(peer) ? &inbox_->ticket_of(peer) : nullptr);
  }
  direct_.set(inbox_->ticket(), std::move(tickets), local.processes);
}

std::uint64_t TcpLink::number(int peer) const { return exchanges_[as_index(peer)] + 1; }

void TcpLink::send_local_header(const Exchange& exchange, int peer) {
  const std::span<const std::byte> bytes = exchange.transfer.send[as_index(peer)];
  const bool small = bytes.size() <= kSmallBytes;
  const ExchangeHeader header =
      header_of(own_claim(exchange, peer), small ? DirectOffer() : direct_.offer(bytes));
  inbox_->send(peer, number(peer), std::as_bytes(std::span(&header, 1)),
               small ? bytes : std::span<const std::byte>());
}

bool TcpLink::take_local_header(int peer) {
  const std::byte* message = inbox_->message(peer, number(peer));
  if (message == nullptr) {
    return false;
  }
  std::memcpy(received_header(peer), message, sizeof(ExchangeHeader));
  return true;
}

Status TcpLink::wait_local_headers(Exchange& exchange) {
  return wait_local(exchange, exchange.local, [&](int peer) -> Result<bool> {
    if (!take_local_header(peer)) {
      return false;
    }
    TRAIN_RETURN_IF_ERROR(compare(exchange, peer));
    return true;
  });
}

Status TcpLink::read_local(const Exchange& exchange) {
  // Each rank begins with the one after it, so that they do not all read the first one's memory.
  std::vector<int> peers = exchange.local;
  std::rotate(peers.begin(), std::upper_bound(peers.begin(), peers.end(), rank_), peers.end());
  for (const int peer : peers) {
    const std::span<std::byte> place = exchange.transfer.receive[as_index(peer)];
    if (place.size() <= kSmallBytes) {
      continue;
    }
    const DirectOffer offer = read_header(received_header(peer)).offer;
    if (const std::optional<std::string> why =
            direct_.read(peer, offer, place, [&] { return is_aborted_.load(); })) {
      return blame(exchange, *why, false);
    }
    inbox_->say_taken(peer, number(peer));
  }
  return {};
}

bool TcpLink::untaken(const Exchange& exchange, int peer) const {
  return is_local(peer) && exchange.transfer.send[as_index(peer)].size() > kSmallBytes &&
         !inbox_->taken(peer, number(peer));
}

Status TcpLink::wait_taken(const Exchange& exchange) {
  return wait_local(exchange, exchange.local,
                    [&](int peer) -> Result<bool> { return !untaken(exchange, peer); });
}

Status TcpLink::wait_local(const Exchange& exchange, std::vector<int> awaited,
                           const Arrived& arrived) {
  const auto has_left = [&](int peer) { return watch_->has_left(peer); };
  auto deadline = SharedInbox::Clock::now() + timeout_;
  bool late = false;
  while (!awaited.empty()) {
    // Before the look at what has arrived: whoever left or failed wrote what it had to write first,
    // and what is written after the look ends the sleep.
    const std::uint32_t rings = inbox_->rings();
    const bool ended = is_aborted_.load() || watch_->lost();
    const auto left = std::find_if(awaited.begin(), awaited.end(), has_left);
    const int gone = left == awaited.end() ? -1 : *left;

    const std::size_t before = awaited.size();
    std::vector<int> still;
    for (const int peer : awaited) {
      const Result<bool> here = arrived(peer);
      if (!here) {
        release_memory();
        return here.error();
      }
      if (!*here) {
        still.push_back(peer);
      }
    }
    awaited = std::move(still);
    if (awaited.empty()) {
      break;
    }
    if (std::find(awaited.begin(), awaited.end(), gone) != awaited.end()) {
      return blame(exchange, fmt::format("lost rank {} (it has left)", gone), false);
    }
    if (ended) {
      return blame(exchange, watch_->loss(), false);
    }
    if (awaited.size() < before) {
      deadline = SharedInbox::Clock::now() + timeout_;
    } else if (late) {
      return blame(exchange, "", true);
    }
    late = !inbox_->sleep(rings, deadline);
  }
  return {};
}

namespace {

constexpr std::uint64_t kFarewellSlot = std::numeric_limits<std::uint64_t>::max();
constexpr auto kFarewellLimit = std::chrono::milliseconds(50);
/// Silence is no loss here; Gloo wants a limit.
constexpr auto kSilenceLimit = std::chrono::hours(24 * 365 * 10);

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
      if (!buffer_->waitRecv(nullptr, kSilenceLimit)) {
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
