#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"
#include "engine/collective/collective.hpp"
#include "engine/collective/connection_watch.hpp"
#include "engine/collective/direct_memory.hpp"
#include "engine/collective/exchange_header.hpp"
#include "engine/collective/link_channel.hpp"
#include "engine/collective/shared_inbox.hpp"
#include "engine/collective/tcp_connection.hpp"

namespace train::engine {

/// The connections of one rank on one channel, and the protocol of an exchange on them.
///
/// An exchange with a peer is: each side sends the other its header (identity, sizes, and the bytes
/// themselves if they are few); headers are compared; what did not fit follows. With a peer on
/// another machine headers and data go over the connection (TcpConnection). With a local one (see
/// agree_on_local()) the header goes through shared memory, the receiver reads the data out of the
/// sender's memory and says so there, and the sender waits for that. Exchanges of a pair follow one
/// another on both sides alike, so the next header of a peer is that of the pair's next exchange.
///
/// The thread that runs an exchange moves all bytes itself: transfers with remote peers begin
/// first, continue between the pieces that are read from local peers, and are waited for last.
/// Borrowed memory is not touched after run() has returned. The thread sleeps on the inbox while it
/// waits for local ranks, else on the connections; a ConnectionWatch wakes it from either when any
/// connection breaks, whichever rank it waits for. A rank that leaves in order, with a farewell,
/// disturbs only the ranks that need it.
///
/// Threading: one owner; abort() is safe from any thread.
class TcpLink final : public ChannelLink {
 public:
  using Milliseconds = std::chrono::milliseconds;

  struct Place {
    int rank = 0;
    int world_size = 1;
  };

  /// `sockets`: by rank, as connect_mesh() makes them. `timeout`: longest time in which nothing
  /// arrives, until set_limit().
  TcpLink(const Place& place, std::vector<Descriptor> sockets,
          std::shared_ptr<ConnectionWatch> watch, Milliseconds timeout);
  ~TcpLink() override;

  /// Starts to watch the connections. Errors: failure (the system cannot).
  [[nodiscard]] Status open();

  [[nodiscard]] Status run(const CollectiveIdentity& identity, const Transfer& transfer) override;
  /// Which ranks are local from the next exchange on: see agree_on_local(). `channel` has an inbox
  /// of its own. Once, between two exchanges.
  void set_local(std::size_t channel, const LocalRanks& local);

  /// From the next exchange on, the longest time in which nothing arrives; none: as long as it
  /// takes. Between two exchanges.
  void set_limit(std::optional<Milliseconds> limit);

  /// Exchanges headers with all ranks: returns when all of them have called it.
  [[nodiscard]] Status barrier(const CollectiveIdentity& identity);

  /// Between two exchanges, for links that move bytes another way: the reason why no more bytes
  /// will come from one of `peers` ("cancelled: ..", "lost rank 2 (..)"); none while all is well.
  /// This rank may be among them.
  [[nodiscard]] std::optional<std::string> trouble(const std::vector<int>& peers);

  void abort(const std::string& reason) override;
  void disconnect(bool farewell) override;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return world_size_; }

 private:
  /// One exchange under way.
  struct Exchange {
    Exchange(const CollectiveIdentity& of, const Transfer& moved, std::vector<int> others,
             int ranks)
        : identity(of), transfer(moved), peers(std::move(others)), headers(as_index(ranks)) {}

    const CollectiveIdentity& identity;
    const Transfer& transfer;
    std::vector<int> peers;  ///< Ascending: the next two together.
    std::vector<int> local;
    std::vector<int> remote;
    std::vector<std::optional<ExchangeHeader>> headers;  ///< By rank: those that have come.
    bool in_data = false;                                ///< All have.
  };
  /// True if the awaited data has come from a peer. An error ends the exchange.
  using Arrived = std::function<Result<bool>(int peer)>;
  using Clock = SharedInbox::Clock;

  [[nodiscard]] Status run_with(const CollectiveIdentity& identity, const Transfer& transfer,
                                std::vector<int> peers);
  [[nodiscard]] Status exchange_headers(Exchange& exchange);
  [[nodiscard]] Status exchange_data(Exchange& exchange);
  [[nodiscard]] PairClaim own_claim(const Exchange& exchange, int peer) const;

  void send_header(const Exchange& exchange, int peer);
  /// True if a header has arrived; an error if it contradicts this rank's claim.
  [[nodiscard]] Result<bool> take_header(Exchange& exchange, int peer) const;
  void take_small(const Exchange& exchange, int peer) const;
  [[nodiscard]] Status read_local(Exchange& exchange);
  /// True if nothing is left to move between this rank and the peer.
  [[nodiscard]] bool is_complete(const Exchange& exchange, int peer) const;

  /// Waits until something has arrived from all of `awaited`, and moves what can be moved.
  [[nodiscard]] Status await(Exchange& exchange, std::vector<int> awaited, const Arrived& arrived);
  /// Removes the ranks from which bytes have arrived from `awaited`.
  [[nodiscard]] static Status strike_out(std::vector<int>& awaited, const Arrived& arrived);
  bool move_bytes(const Exchange& exchange);
  /// Reads what has come over connections that have ended since the last look.
  void look_at_ended();
  /// False: at `deadline`.
  [[nodiscard]] bool sleep(const Exchange& exchange, const std::vector<int>& awaited,
                           std::uint32_t rings, Clock::time_point deadline);
  [[nodiscard]] bool sleep_on_inbox(const Exchange& exchange, std::uint32_t rings,
                                    Clock::time_point deadline);
  [[nodiscard]] bool sleep_on_connections(const Exchange& exchange, Clock::time_point deadline);

  // With ranks of this machine.
  [[nodiscard]] bool is_local(int peer) const { return inbox_ && inbox_->reaches(peer); }
  /// The number of the exchange under way with that peer.
  [[nodiscard]] std::uint64_t number(int peer) const { return exchanges_[as_index(peer)] + 1; }
  /// True if the peer reads its bytes directly from this rank and has not yet said taken.
  [[nodiscard]] bool untaken(const Exchange& exchange, int peer) const;

  [[nodiscard]] TcpConnection& connection(int peer) const { return *connections_[as_index(peer)]; }
  [[nodiscard]] bool has_left(int peer) const;
  [[nodiscard]] bool any_lost() const;
  [[nodiscard]] std::optional<std::string> aborted() const;
  /// Error that names the failure and the ranks to blame.
  [[nodiscard]] Error blame(Exchange& exchange, const std::string& what);
  [[nodiscard]] Error blame_silence(const Exchange& exchange) const;
  [[nodiscard]] std::string silent_ranks(const Exchange& exchange) const;
  [[nodiscard]] std::string lost_ranks(const std::vector<int>& needed);
  void release_memory();
  void say_farewell();
  /// Ends the owner's current or next wait, so that it checks again. REQUIRES: the lock is held.
  void end_waits();

  int rank_;
  int world_size_;
  Milliseconds timeout_;
  std::shared_ptr<ConnectionWatch> watch_;
  std::vector<std::unique_ptr<TcpConnection>> connections_;  ///< By rank; empty: disconnected.
  std::vector<std::atomic<bool>> ended_;  ///< By rank: ended, by the watch; not handled yet.
  std::vector<std::uint64_t> exchanges_;  ///< By rank: exchanges had with it.
  DirectMemory direct_;
  std::atomic<bool> is_aborted_{false};
  Descriptor wake_;  ///< An eventfd, for sleep_on_connections().

  mutable std::mutex mutex_;          ///< Guards what follows against abort() and the watch.
  std::optional<SharedInbox> inbox_;  ///< None: no rank is local. Set once, by the owner.
  std::optional<std::string> aborted_;
};

}  // namespace train::engine
