#include <fmt/format.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <limits>

#include "engine/collective/gloo_header.hpp"
#include "engine/collective/gloo_link.hpp"
#include "engine/collective/gloo_text.hpp"

// The words for an exchange that failed.
namespace train::engine {
namespace {

constexpr std::uint64_t kNonfiniteSlot = std::numeric_limits<std::uint64_t>::max() - 1;

}  // namespace

Error GlooLink::blame(const Exchange& exchange, const std::string& what, bool timed_out) {
  const std::string broken = timed_out       ? std::string()
                             : exchange.lost ? *exchange.lost
                                             : broken_ranks(exchange.peers);
  release_memory();
  if (const std::optional<std::string> reason = aborted()) {
    return failure(fmt::format("{}: cancelled: {}", to_string(exchange.identity), *reason));
  }
  // A peer that differs says so and closes; the news of the closing may overtake the header.
  for (const int peer : exchange.peers) {
    if (Status same = compare_if_arrived(exchange, peer); !same) {
      return same.error();
    }
  }
  if (timed_out) {
    return failure(fmt::format("{}: waited {} ms for {}", to_string(exchange.identity),
                               timeout_.count(), silent_ranks(exchange)));
  }
  return failure(fmt::format("{}: {}", to_string(exchange.identity),
                             broken.empty() ? without_place(what) : broken));
}

std::string GlooLink::silent_ranks(const Exchange& exchange) const {
  std::vector<int> silent;
  for (const int peer : exchange.peers) {
    if (!exchange.headers_done &&
        read_gloo_header(received_header(peer)).arrived != kHeaderArrived) {
      silent.push_back(peer);
    }
  }
  if (!silent.empty()) {
    return name_ranks(silent) + " to begin it";
  }
  for (const int peer : exchange.peers) {
    if (exchange.to_receive[as_index(peer)] > 0) {
      silent.push_back(peer);
    }
  }
  if (!silent.empty()) {
    return "data from " + name_ranks(silent);
  }
  for (const int peer : exchange.peers) {
    if (exchange.to_send[as_index(peer)] > 0 || untaken(exchange, peer)) {
      silent.push_back(peer);
    }
  }
  return name_ranks(silent) + " to take its data";
}

std::optional<std::string> GlooLink::trouble(const std::vector<int>& peers) {
  if (const std::optional<std::string> reason = aborted()) {
    return "cancelled: " + *reason;
  }
  if (watch_->lost()) {
    const std::string broken = broken_ranks(peers);
    return broken.empty() ? watch_->loss() : broken;
  }
  for (const int peer : peers) {
    if (watch_->has_left(peer)) {
      return fmt::format("rank {} has left", peer);
    }
  }
  return std::nullopt;
}

std::string GlooLink::broken_ranks(const std::vector<int>& peers) {
  std::vector<int> broken;
  std::string why;
  for (int peer = 0; peer < world_size_; ++peer) {
    const bool needed = std::binary_search(peers.begin(), peers.end(), peer);
    if (peer == rank_ || (!needed && watch_->has_left(peer))) {
      continue;
    }
    try {
      everything_->recv(peer, kNonfiniteSlot, 0, 0);
    } catch (const std::exception& error) {
      broken.push_back(peer);
      why = without_place(error.what());
    }
  }
  return broken.empty() ? std::string() : fmt::format("lost {} ({})", name_ranks(broken), why);
}

}  // namespace train::engine
