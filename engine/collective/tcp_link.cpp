#include "engine/collective/tcp_link.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <tuple>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

namespace {

/// A wait without a limit; the inbox wants one.
constexpr auto kForever = std::chrono::hours(24 * 365 * 10);
constexpr auto kFarewellLimit = std::chrono::milliseconds(50);

}  // namespace

TcpLink::TcpLink(const Place& place, std::vector<Descriptor> sockets,
                 std::shared_ptr<ConnectionWatch> watch, Milliseconds timeout)
    : rank_(place.rank),
      world_size_(place.world_size),
      timeout_(timeout),
      watch_(std::move(watch)),
      connections_(sockets.size()),
      ended_(sockets.size()),
      exchanges_(sockets.size(), 0) {
  TRAIN_CHECK(sockets.size() == as_index(world_size_), "{} sockets", sockets.size());
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (peer != as_index(rank_)) {
      connections_[peer] = std::make_unique<TcpConnection>(std::move(sockets[peer]));
    }
  }
}

TcpLink::~TcpLink() { disconnect(true); }

void TcpLink::set_limit(std::optional<Milliseconds> limit) { timeout_ = limit.value_or(kForever); }

Status TcpLink::open() {
  wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) {
    return failure(fmt::format("a channel cannot be opened: {}", std::strerror(errno)));
  }
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) {
      continue;
    }
    TRAIN_RETURN_IF_ERROR(watch_->add(connection(peer).socket(), [this, peer](bool over) {
      if (over) {
        ended_[as_index(peer)].store(true);
      }
      const std::lock_guard lock(mutex_);
      end_waits();
    }));
  }
  return {};
}

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
  tickets.reserve(static_cast<std::size_t>(world_size_));
  for (int peer = 0; peer < world_size_; ++peer) {
    tickets.push_back(inbox_->reaches(peer) ? &inbox_->ticket_of(peer) : nullptr);
  }
  direct_.set(inbox_->ticket(), std::move(tickets), local.processes);
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
  Status status = exchange_headers(exchange);
  if (status.ok()) {
    status = exchange_data(exchange);
  }
  if (!status.ok()) {
    release_memory();
    return status;
  }
  for (const int peer : exchange.peers) {
    ++exchanges_[as_index(peer)];
  }
  return {};
}

Status TcpLink::exchange_headers(Exchange& exchange) {
  direct_.begin();
  for (const int peer : exchange.remote) {
    send_header(exchange, peer);
  }
  move_bytes(exchange);
  for (const int peer : exchange.local) {
    send_header(exchange, peer);
  }
  copy_own(exchange.transfer, rank_);
  return await(exchange, exchange.peers,
               [&](int peer) -> Result<bool> { return take_header(exchange, peer); });
}

Status TcpLink::exchange_data(Exchange& exchange) {
  exchange.in_data = true;
  const auto many = [](auto bytes) {
    return bytes.size() > kSmallBytes ? bytes : decltype(bytes)();
  };
  for (const int peer : exchange.peers) {
    take_small(exchange, peer);
  }
  for (const int peer : exchange.remote) {
    const std::size_t at = as_index(peer);
    connection(peer).exchange_data(many(exchange.transfer.send[at]),
                                   many(exchange.transfer.receive[at]));
  }
  move_bytes(exchange);
  TRAIN_RETURN_IF_ERROR(read_local(exchange));
  return await(exchange, exchange.peers,
               [&](int peer) -> Result<bool> { return is_complete(exchange, peer); });
}

PairClaim TcpLink::own_claim(const Exchange& exchange, int peer) const {
  return {rank_, exchange.identity, exchange.transfer.send[as_index(peer)].size(),
          exchange.transfer.receive[as_index(peer)].size()};
}

void TcpLink::send_header(const Exchange& exchange, int peer) {
  const std::span<const std::byte> bytes = exchange.transfer.send[as_index(peer)];
  const bool is_small = bytes.size() <= kSmallBytes;
  const std::span<const std::byte> small = is_small ? bytes : std::span<const std::byte>();
  const bool offers = is_local(peer) && !is_small;
  const ExchangeHeader header =
      header_of(own_claim(exchange, peer), offers ? direct_.offer(bytes) : DirectOffer());
  if (is_local(peer)) {
    inbox_->send(peer, number(peer), std::as_bytes(std::span(&header, 1)), small);
  } else {
    connection(peer).send_header(header, small);
  }
}

Result<bool> TcpLink::take_header(Exchange& exchange, int peer) const {
  std::optional<ExchangeHeader>& taken = exchange.headers[as_index(peer)];
  if (is_local(peer)) {
    const std::byte* message = inbox_->message(peer, number(peer));
    taken = message != nullptr ? std::optional(read_header(message)) : std::nullopt;
  } else if (const ExchangeHeader* header = connection(peer).header()) {
    taken = *header;
  }
  if (!taken) {
    return false;
  }
  const PairClaim own = own_claim(exchange, peer);
  const PairClaim theirs = claim_of(*taken, peer);
  if (!agree(own, theirs)) {
    return disagreement(own, theirs);
  }
  const std::size_t bytes = own.received_bytes <= kSmallBytes ? own.received_bytes : 0;
  if (!is_local(peer) && connection(peer).small().size() != bytes) {
    return failure(fmt::format("{}: rank {} sends {} bytes with its header where {} belong",
                               to_string(exchange.identity), peer, connection(peer).small().size(),
                               bytes));
  }
  return true;
}

void TcpLink::take_small(const Exchange& exchange, int peer) const {
  const std::span<std::byte> place = exchange.transfer.receive[as_index(peer)];
  if (place.empty() || place.size() > kSmallBytes) {
    return;
  }
  const std::byte* small = is_local(peer)
                               ? inbox_->message(peer, number(peer)) + sizeof(ExchangeHeader)
                               : connection(peer).small().data();
  std::memcpy(place.data(), small, place.size());
}

Status TcpLink::read_local(Exchange& exchange) {
  // Each rank begins with the one after it, so that they do not all read the first one's memory.
  std::vector<int> peers = exchange.local;
  std::rotate(peers.begin(), std::upper_bound(peers.begin(), peers.end(), rank_), peers.end());
  const auto stop = [&] {
    move_bytes(exchange);
    return is_aborted_.load();
  };
  for (const int peer : peers) {
    const std::span<std::byte> place = exchange.transfer.receive[as_index(peer)];
    if (place.size() <= kSmallBytes) {
      continue;
    }
    const DirectOffer offer = exchange.headers[as_index(peer)]->offer;
    if (const std::optional<std::string> why = direct_.read(peer, offer, place, stop)) {
      return blame(exchange, *why);
    }
    inbox_->say_taken(peer, number(peer));
  }
  return {};
}

bool TcpLink::untaken(const Exchange& exchange, int peer) const {
  return is_local(peer) && exchange.transfer.send[as_index(peer)].size() > kSmallBytes &&
         !inbox_->taken(peer, number(peer));
}

bool TcpLink::is_complete(const Exchange& exchange, int peer) const {
  return is_local(peer) ? !untaken(exchange, peer)
                        : connection(peer).has_received() && connection(peer).is_sent();
}

Status TcpLink::strike_out(std::vector<int>& awaited, const Arrived& arrived) {
  std::vector<int> still;
  for (const int peer : awaited) {
    const bool here = TRAIN_TRY(arrived(peer));
    if (!here) {
      still.push_back(peer);
    }
  }
  awaited = std::move(still);
  return {};
}

Status TcpLink::await(Exchange& exchange, std::vector<int> awaited, const Arrived& arrived) {
  auto deadline = Clock::now() + timeout_;
  bool late = false;
  while (true) {
    // Read before checking arrivals: a rank that left or failed has written its messages before,
    // and any message written after the check ends the sleep.
    const std::uint32_t rings = inbox_ ? inbox_->rings() : 0;
    const bool is_aborted = is_aborted_.load();
    const bool moved = move_bytes(exchange);
    const std::size_t before = awaited.size();
    TRAIN_RETURN_IF_ERROR(strike_out(awaited, arrived));
    if (awaited.empty()) {
      return {};
    }
    const auto left =
        std::find_if(awaited.begin(), awaited.end(), [this](int peer) { return has_left(peer); });
    if (left != awaited.end()) {
      return blame(exchange, fmt::format("lost rank {} (it has left)", *left));
    }
    if (is_aborted || any_lost()) {
      return blame(exchange, "");
    }
    if (moved || awaited.size() < before) {
      deadline = Clock::now() + timeout_;
      late = false;
    } else if (late) {
      return blame_silence(exchange);
    }
    late = !moved && !sleep(exchange, awaited, rings, deadline);
  }
}

bool TcpLink::move_bytes(const Exchange& exchange) {
  look_at_ended();
  bool moved = false;
  for (const int peer : exchange.remote) {
    moved = connection(peer).move_bytes() || moved;
  }
  return moved;
}

void TcpLink::look_at_ended() {
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer != rank_ && ended_[as_index(peer)].load() &&
        connection(peer).state() == TcpConnection::State::open) {
      connection(peer).end();
    }
  }
}

bool TcpLink::sleep(const Exchange& exchange, const std::vector<int>& awaited, std::uint32_t rings,
                    Clock::time_point deadline) {
  const bool on_inbox =
      std::any_of(awaited.begin(), awaited.end(), [this](int peer) { return is_local(peer); });
  return on_inbox ? sleep_on_inbox(exchange, rings, deadline)
                  : sleep_on_connections(exchange, deadline);
}

bool TcpLink::sleep_on_inbox(const Exchange& exchange, std::uint32_t rings,
                             Clock::time_point deadline) {
  for (const int peer : exchange.remote) {
    const TcpConnection& remote = connection(peer);
    watch_->ask(remote.socket(),
                {.to_read = remote.waits_to_read(), .to_write = remote.waits_to_write()});
  }
  const bool in_time = inbox_->sleep(rings, deadline);
  for (const int peer : exchange.remote) {
    watch_->ask(connection(peer).socket(), {});
  }
  return in_time;
}

bool TcpLink::sleep_on_connections(const Exchange& exchange, Clock::time_point deadline) {
  std::vector<pollfd> watched = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  for (const int peer : exchange.remote) {
    const TcpConnection& remote = connection(peer);
    const int events =
        (remote.waits_to_read() ? POLLIN : 0) | (remote.waits_to_write() ? POLLOUT : 0);
    if (events != 0) {
      watched.push_back(
          {.fd = remote.socket(), .events = static_cast<short>(events), .revents = 0});
    }
  }
  const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
  const auto most = std::clamp<std::int64_t>(left.count(), 0, 3'600'000);
  const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(most));
  TRAIN_CHECK(ready >= 0 || errno == EINTR, "{}", std::strerror(errno));
  if (std::uint64_t count = 0; watched.front().revents != 0) {
    std::ignore = ::read(wake_.get(), &count, sizeof(count));  // reset, so that writers are seen
  }
  return ready != 0 || Clock::now() < deadline;
}

bool TcpLink::has_left(int peer) const {
  return peer != rank_ && connection(peer).state() == TcpConnection::State::left;
}

bool TcpLink::any_lost() const {
  return std::any_of(connections_.begin(), connections_.end(), [](const auto& connection) {
    return connection && connection->state() == TcpConnection::State::lost;
  });
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
  end_waits();
}

void TcpLink::end_waits() {
  if (inbox_) {
    inbox_->ring_own();
  }
  const std::uint64_t one = 1;
  std::ignore = ::write(wake_.get(), &one, sizeof(one));  // one that is full wakes as well
}

void TcpLink::release_memory() {
  direct_.revoke();
  for (const auto& connection : connections_) {
    if (connection) {
      connection->release();
    }
  }
}

void TcpLink::say_farewell() {
  const auto deadline = Clock::now() + kFarewellLimit;
  std::vector<pollfd> unsaid;
  for (const auto& connection : connections_) {
    if (connection) {
      connection->say_farewell();
    }
  }
  while (true) {
    unsaid.clear();
    for (const auto& connection : connections_) {
      if (connection && connection->waits_to_write()) {
        connection->move_bytes();
      }
      if (connection && connection->waits_to_write()) {
        unsaid.push_back({.fd = connection->socket(), .events = POLLOUT, .revents = 0});
      }
    }
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    if (unsaid.empty() || left.count() <= 0) {
      return;  // one that has not taken 16 bytes by now is lost
    }
    ::poll(unsaid.data(), unsaid.size(), static_cast<int>(left.count()));
  }
}

void TcpLink::disconnect(bool farewell) {
  if (farewell) {
    say_farewell();
  }
  release_memory();
  for (const auto& connection : connections_) {
    if (connection) {
      watch_->remove(connection->socket());
    }
  }
  connections_.clear();
  watch_.reset();
}

std::optional<std::string> TcpLink::trouble(const std::vector<int>& peers) {
  if (const std::optional<std::string> reason = aborted()) {
    return "cancelled: " + *reason;
  }
  look_at_ended();
  if (any_lost()) {
    return lost_ranks(peers);
  }
  for (const int peer : peers) {
    if (has_left(peer)) {
      return fmt::format("rank {} has left", peer);
    }
  }
  return std::nullopt;
}

// The words for an exchange that failed.

Error TcpLink::blame(Exchange& exchange, const std::string& what) {
  if (const std::optional<std::string> reason = aborted()) {
    return failure(fmt::format("{}: cancelled: {}", to_string(exchange.identity), *reason));
  }
  // A peer that differs says so and closes; the news of the closing may overtake the header.
  for (const int peer : exchange.peers) {
    if (exchange.in_data) {
      break;
    }
    if (const Result<bool> same = take_header(exchange, peer); !same) {
      return same.error();
    }
  }
  std::vector<int> needed;
  for (const int peer : exchange.peers) {
    if (exchange.in_data ? !is_complete(exchange, peer) : !exchange.headers[as_index(peer)]) {
      needed.push_back(peer);
    }
  }
  const std::string lost = lost_ranks(needed);
  return failure(fmt::format("{}: {}", to_string(exchange.identity), lost.empty() ? what : lost));
}

Error TcpLink::blame_silence(const Exchange& exchange) const {
  return failure(fmt::format("{}: waited {} ms for {}", to_string(exchange.identity),
                             timeout_.count(), silent_ranks(exchange)));
}

std::string TcpLink::silent_ranks(const Exchange& exchange) const {
  const auto those = [&](const std::function<bool(int peer)>& silent) {
    std::vector<int> ranks;
    std::copy_if(exchange.peers.begin(), exchange.peers.end(), std::back_inserter(ranks), silent);
    return ranks;
  };
  if (!exchange.in_data) {
    return name_ranks(those([&](int peer) { return !exchange.headers[as_index(peer)]; })) +
           " to begin it";
  }
  const std::vector<int> senders =
      those([&](int peer) { return !is_local(peer) && !connection(peer).has_received(); });
  if (!senders.empty()) {
    return "data from " + name_ranks(senders);
  }
  return name_ranks(those([&](int peer) { return !is_complete(exchange, peer); })) +
         " to take its data";
}

std::string TcpLink::lost_ranks(const std::vector<int>& needed) {
  look_at_ended();
  std::vector<int> lost;
  std::string why;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (peer == rank_) {
      continue;
    }
    const TcpConnection& its = connection(peer);
    if (its.state() == TcpConnection::State::lost) {
      lost.push_back(peer);
      why = its.why();
    } else if (has_left(peer) && std::binary_search(needed.begin(), needed.end(), peer)) {
      lost.push_back(peer);
      why = why.empty() ? "it has left" : why;
    }
  }
  return lost.empty() ? std::string() : fmt::format("lost {} ({})", name_ranks(lost), why);
}

}  // namespace train::engine
