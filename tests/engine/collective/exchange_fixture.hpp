#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/collective/collective.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

using engine::Channel;
using engine::CollectiveIdentity;
using engine::Collectives;
using engine::Transfer;

/// Bytes that rank `from` sends to rank `to`.
using SizeOf = std::function<std::size_t(int from, int to)>;

/// What one rank sends and receives in an exchange: bytes that tell where they come from.
class Parcel {
 public:
  static constexpr std::byte kUntouched{0xee};

  Parcel(int rank, int world_size, const SizeOf& size_of, int salt = 0) : rank_(rank), salt_(salt) {
    for (int peer = 0; peer < world_size; ++peer) {
      std::vector<std::byte> sent(size_of(rank, peer));
      for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i] = content(rank, peer, i);
      }
      sent_.push_back(std::move(sent));
      received_.emplace_back(size_of(peer, rank), kUntouched);
    }
  }

  [[nodiscard]] Transfer transfer() {
    Transfer transfer;
    transfer.send.assign(sent_.begin(), sent_.end());
    transfer.receive.assign(received_.begin(), received_.end());
    return transfer;
  }

  /// All bytes have come, from where they should.
  [[nodiscard]] bool whole() const {
    for (std::size_t from = 0; from < received_.size(); ++from) {
      for (std::size_t i = 0; i < received_[from].size(); ++i) {
        if (received_[from][i] != content(static_cast<int>(from), rank_, i)) {
          return false;
        }
      }
    }
    return true;
  }

  /// Nothing has come from any other rank.
  [[nodiscard]] bool untouched() const {
    for (std::size_t from = 0; from < received_.size(); ++from) {
      for (const std::byte byte : received_[from]) {
        if (static_cast<int>(from) != rank_ && byte != kUntouched) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  [[nodiscard]] std::byte content(int from, int to, std::size_t i) const {
    const std::size_t mixed =
        i * 7 + i / 251 + static_cast<std::size_t>(from * 31 + to * 5 + salt_);
    return static_cast<std::byte>(mixed % 223);  // never kUntouched
  }

  int rank_;
  int salt_;
  std::vector<std::vector<std::byte>> sent_;
  std::vector<std::vector<std::byte>> received_;
};

inline CollectiveIdentity identity_of(std::int64_t command, std::uint32_t index = 0,
                                      Channel channel = Channel::reduce) {
  return {.generation = 1, .command = command, .channel = channel, .index = index, .hash = 0xabc};
}

/// Starts an exchange; the future is its end.
inline std::future<Status> start(Collectives& collectives, const CollectiveIdentity& identity,
                                 Transfer transfer) {
  const auto promise = std::make_shared<std::promise<Status>>();
  std::future<Status> ended = promise->get_future();
  collectives.exchange(identity, std::move(transfer),
                       [promise](const Status& status) { promise->set_value(status); });
  return ended;
}

/// The error's text; "" if there is none.
inline std::string text_of(const Status& status) {
  return status.ok() ? std::string() : status.error().message;
}

/// The end of an exchange as text: "" is success. One that does not end is no end.
inline std::string end_of(std::future<Status>& ended,
                          std::chrono::milliseconds limit = hang_limit) {
  if (ended.wait_for(limit) != std::future_status::ready) {
    return "has not ended";
  }
  return text_of(ended.get());
}

}  // namespace train::test
