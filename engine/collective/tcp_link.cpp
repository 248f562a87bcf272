#include "engine/collective/tcp_link.hpp"

#include <fmt/format.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "base/check.hpp"
#include "engine/collective/exchange_header.hpp"

namespace train::engine {

namespace {

/// A large message is cut so that its progress shows, and the timeout is one of silence. Gloo
/// itself has no limit.
constexpr std::size_t kChunkBytes = std::size_t{16} << 20;
constexpr int kChunkBits = 24;

/// A wait without a limit; Gloo and the inbox want one.
constexpr auto kForever = std::chrono::hours(24 * 365 * 10);

constexpr std::size_t kAreaBytes = sizeof(ExchangeHeader) + kSmallBytes;

std::size_t chunks_of(std::size_t bytes) {
  return bytes <= kSmallBytes ? 0 : (bytes + kChunkBytes - 1) / kChunkBytes;
}

}  // namespace

TcpLink::TcpLink(std::shared_ptr<gloo::transport::Device> device,
                 std::shared_ptr<gloo::Context> context, Milliseconds timeout)
    : device_(std::move(device)),
      context_(std::move(context)),
      rank_(context_->rank),
      world_size_(context_->size),
      timeout_(timeout),
      exchanges_(as_index(world_size_), 0),
      headers_(2 * kAreaBytes * as_index(world_size_)),
      everything_(context_->createUnboundBuffer(nullptr, std::numeric_limits<std::size_t>::max())) {
}

TcpLink::~TcpLink() { disconnect(true); }

void TcpLink::set_limit(std::optional<Milliseconds> limit) { timeout_ = limit.value_or(kForever); }

Status TcpLink::open() {
  try {
    watch_ = std::make_unique<GlooWatch>(*context_, [this](bool lost) {
      const std::lock_guard lock(mutex_);
      end_waits(lost);
    });
  } catch (const std::exception& error) {
    return failure(without_place(error.what()));
  }
  return {};
}

Status TcpLink::run(const CollectiveIdentity& identity, const Transfer& transfer) {
  return run_with(identity, transfer, peers_of(transfer, rank_));
}

Status TcpLink::barrier(const CollectiveIdentity& identity) {
  std::vector<int> peers;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_) {
      peers.push_back(peer);
    }
  }
  Transfer nothing;
  nothing.send.resize(as_index(world_size_));
  nothing.receive.resize(as_index(world_size_));
  return run_with(identity, nothing, std::move(peers));
}

Status TcpLink::run_with(const CollectiveIdentity& identity, const Transfer& transfer,
                         std::vector<int> peers) {
  Exchange exchange(identity, transfer, std::move(peers), world_size_);
  for (const int peer : exchange.peers) {
    (is_local(peer) ? exchange.local : exchange.remote).push_back(peer);
  }
  if (const std::optional<std::string> reason = aborted()) {
    return failure(fmt::format("{}: cancelled: {}", to_string(exchange.identity), *reason));
  }
  try {
    TRAIN_RETURN_IF_ERROR(exchange_headers(exchange));
    TRAIN_RETURN_IF_ERROR(exchange_data(exchange));
  } catch (const std::exception& error) {
    return blame(exchange, error.what(), false);
  }
  for (const int peer : exchange.peers) {
    ++exchanges_[as_index(peer)];
  }
  return {};
}

Status TcpLink::exchange_headers(Exchange& exchange) {
  for (const int peer : exchange.peers) {  // all, before any of the calls below can fail
    std::memset(received_header(peer), 0, sizeof(ExchangeHeader));
  }
  direct_.begin();
  for (const int peer : exchange.remote) {
    post_receive(peer, slot(peer, 0), received_header(peer), kAreaBytes);
    exchange.to_receive[as_index(peer)] = 1;
  }
  for (const int peer : exchange.remote) {
    post_header(exchange, peer);
  }
  for (const int peer : exchange.local) {
    send_local_header(exchange, peer);
  }
  copy_own(exchange.transfer, rank_);
  TRAIN_RETURN_IF_ERROR(wait_local_headers(exchange));
  TRAIN_RETURN_IF_ERROR(wait_receives(exchange, exchange.remote.size()));
  for (const int peer : exchange.peers) {
    if (Status same = compare(exchange, peer); !same) {
      release_memory();
      return same;
    }
  }
  exchange.headers_done = true;
  return {};
}

Status TcpLink::exchange_data(Exchange& exchange) {
  std::size_t messages = 0;
  for (const int peer : exchange.remote) {
    exchange.to_receive[as_index(peer)] =
        chunks_of(exchange.transfer.receive[as_index(peer)].size());
    messages += exchange.to_receive[as_index(peer)];
    post_chunks(exchange, peer, true);
  }
  for (const int peer : exchange.remote) {
    post_chunks(exchange, peer, false);
  }
  for (const int peer : exchange.peers) {
    take_small(exchange, peer);
  }
  TRAIN_RETURN_IF_ERROR(read_local(exchange));
  TRAIN_RETURN_IF_ERROR(wait_taken(exchange));
  TRAIN_RETURN_IF_ERROR(wait_receives(exchange, messages));
  return wait_sends(exchange);
}

void TcpLink::post_header(Exchange& exchange, int peer) {
  const std::span<const std::byte> bytes = exchange.transfer.send[as_index(peer)];
  const ExchangeHeader header = header_of(own_claim(exchange, peer), DirectOffer());
  std::byte* area = sent_header(peer);
  std::memcpy(area, &header, sizeof(header));
  std::size_t small = 0;
  if (!bytes.empty() && bytes.size() <= kSmallBytes) {
    small = bytes.size();
    std::memcpy(area + sizeof(header), bytes.data(), small);
  }
  post_send(peer, slot(peer, 0), area, sizeof(header) + small);
  ++exchange.to_send[as_index(peer)];
}

void TcpLink::post_chunks(Exchange& exchange, int peer, bool receive) {
  const std::span<const std::byte> range =
      receive ? exchange.transfer.receive[as_index(peer)] : exchange.transfer.send[as_index(peer)];
  for (std::size_t chunk = 0; chunk < chunks_of(range.size()); ++chunk) {
    const std::size_t begin = chunk * kChunkBytes;
    const std::size_t bytes = std::min(kChunkBytes, range.size() - begin);
    if (receive) {
      post_receive(peer, slot(peer, chunk + 1), range.data() + begin, bytes);
    } else {
      post_send(peer, slot(peer, chunk + 1), range.data() + begin, bytes);
      ++exchange.to_send[as_index(peer)];
    }
  }
}

PairClaim TcpLink::own_claim(const Exchange& exchange, int peer) const {
  return {rank_, exchange.identity, exchange.transfer.send[as_index(peer)].size(),
          exchange.transfer.receive[as_index(peer)].size()};
}

Status TcpLink::compare(const Exchange& exchange, int peer) const {
  const PairClaim own = own_claim(exchange, peer);
  const PairClaim theirs = claim_of(read_header(received_header(peer)), peer);
  return agree(own, theirs) ? Status() : Status(disagreement(own, theirs));
}

Status TcpLink::compare_if_arrived(const Exchange& exchange, int peer) const {
  const bool arrived = read_header(received_header(peer)).arrived == kHeaderArrived;
  return arrived ? compare(exchange, peer) : Status();
}

void TcpLink::take_small(const Exchange& exchange, int peer) const {
  const std::span<std::byte> place = exchange.transfer.receive[as_index(peer)];
  if (!place.empty() && place.size() <= kSmallBytes) {
    const std::byte* message =
        is_local(peer) ? inbox_->message(peer, number(peer)) : received_header(peer);
    std::memcpy(place.data(), message + sizeof(ExchangeHeader), place.size());
  }
}

bool TcpLink::next_message(Exchange& exchange, bool receive, int& peer) {
  const auto wait = [&](Milliseconds limit) {
    return receive ? everything_->waitRecv(&peer, limit) : everything_->waitSend(&peer, limit);
  };
  if (aborted()) {
    return false;
  }
  if (!watch_->lost() && wait(timeout_)) {
    return true;
  }
  if (aborted()) {
    return false;
  }
  if (!exchange.lost) {
    exchange.lost = broken_ranks(exchange.peers);  // before the end of Gloo's patience breaks all
  }
  // What has come before the loss counts. The first look may only take back the call to look.
  return wait(Milliseconds(0)) || wait(Milliseconds(0));
}

Status TcpLink::wait_message(Exchange& exchange, bool receive, int& peer) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    if (next_message(exchange, receive, peer)) {
      return {};
    }
    return blame(exchange, watch_->loss(), false);
  } catch (const std::exception& error) {
    return blame(exchange, error.what(), std::chrono::steady_clock::now() - begin >= timeout_);
  }
}

Status TcpLink::wait_receives(Exchange& exchange, std::size_t count) {
  for (; count > 0; --count) {
    int peer = -1;
    TRAIN_RETURN_IF_ERROR(wait_message(exchange, true, peer));
    // Of several that came at once Gloo names only the last: a rank named here has sent something,
    // one not named may have.
    std::size_t& left = exchange.to_receive[as_index(peer)];
    if (left > 0 && !exchange.headers_done) {
      if (Status same = compare_if_arrived(exchange, peer); !same) {
        release_memory();
        return same;
      }
    }
    left -= left > 0 ? 1 : 0;
  }
  return {};
}

Status TcpLink::wait_sends(Exchange& exchange) {
  std::size_t count = 0;
  for (const std::size_t messages : exchange.to_send) {
    count += messages;
  }
  exchange.to_receive.assign(exchange.to_receive.size(), 0);
  for (; count > 0; --count) {
    int peer = -1;
    TRAIN_RETURN_IF_ERROR(wait_message(exchange, false, peer));
    std::size_t& left = exchange.to_send[as_index(peer)];
    left -= left > 0 ? 1 : 0;
  }
  return {};
}

std::optional<std::string> TcpLink::aborted() const {
  const std::lock_guard lock(mutex_);
  return aborted_;
}

void TcpLink::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!aborted_) {
    aborted_ = reason;
  }
  is_aborted_.store(true);
  end_waits(true);
}

void TcpLink::end_waits(bool remote) {
  if (remote && everything_) {
    everything_->abortWaitRecv();
    everything_->abortWaitSend();
  }
  if (inbox_) {
    inbox_->ring_own();
  }
}

void TcpLink::release_memory() {
  direct_.revoke();
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  {
    const std::lock_guard lock(mutex_);
    buffer = std::move(everything_);
  }
  if (buffer) {
    // The destructor waits for Gloo's threads, but a sanitizer sees only its lock.
    buffer->abortWaitRecv();
  }
}

void TcpLink::disconnect(bool farewell) {
  if (farewell && everything_ && watch_) {
    watch_->say_farewell();
  }
  if (watch_) {
    watch_->stop();
  }
  release_memory();
  if (context_) {
    context_->closeConnections();
  }
  watch_.reset();  // after the connections: nobody tells it of them any more
  context_.reset();
  device_.reset();
}

void TcpLink::post_receive(int peer, std::uint64_t slot, const std::byte* place,
                           std::size_t bytes) {
  everything_->recv(peer, slot, reinterpret_cast<std::uintptr_t>(place), bytes);
}

void TcpLink::post_send(int peer, std::uint64_t slot, const std::byte* from, std::size_t bytes) {
  everything_->send(peer, slot, reinterpret_cast<std::uintptr_t>(from), bytes);
}

std::uint64_t TcpLink::slot(int peer, std::uint64_t chunk) const {
  TRAIN_CHECK(chunk >> kChunkBits == 0, "chunk {}", chunk);
  return exchanges_[as_index(peer)] << kChunkBits | chunk;
}

std::byte* TcpLink::sent_header(int peer) { return &headers_[2 * kAreaBytes * as_index(peer)]; }

std::byte* TcpLink::received_header(int peer) { return sent_header(peer) + kAreaBytes; }

const std::byte* TcpLink::received_header(int peer) const {
  return &headers_[2 * kAreaBytes * as_index(peer) + kAreaBytes];
}

// The words for an exchange that failed.

namespace {

constexpr std::uint64_t kNonfiniteSlot = std::numeric_limits<std::uint64_t>::max() - 1;

}  // namespace

Error TcpLink::blame(const Exchange& exchange, const std::string& what, bool timed_out) {
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

std::string TcpLink::silent_ranks(const Exchange& exchange) const {
  std::vector<int> silent;
  for (const int peer : exchange.peers) {
    if (!exchange.headers_done && read_header(received_header(peer)).arrived != kHeaderArrived) {
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

std::optional<std::string> TcpLink::trouble(const std::vector<int>& peers) {
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

std::string TcpLink::broken_ranks(const std::vector<int>& peers) {
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
