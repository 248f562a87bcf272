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
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/collective.hpp"
#include "engine/collective/direct_memory.hpp"
#include "engine/collective/link_channel.hpp"
#include "engine/collective/shared_inbox.hpp"

namespace gloo {
class Context;
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo
namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace train::engine {

/// Notices when a rank of a link leaves, in order or not.
///
/// Gloo tells nobody but pending operations that a connection broke. So a receive is pending from
/// each peer that only its farewell answers, and a thread waits for these: a death is noticed at
/// once, whatever else the link waits for, and costs nothing until then. A rank that says farewell
/// has done all it had to.
///
/// Threading: one owner; has_left() and loss() from any thread.
class GlooWatch {
 public:
  /// Is called on the thread of the watch for every farewell, and once for a loss, when has_left()
  /// or lost() shows it already.
  using Changed = std::function<void(bool lost)>;

  /// Posts the receives and starts the thread. Throws what Gloo throws if a connection is broken.
  GlooWatch(gloo::Context& context, Changed changed);
  GlooWatch(const GlooWatch&) = delete;
  GlooWatch& operator=(const GlooWatch&) = delete;
  ~GlooWatch();

  /// Ends the thread: `changed` is called no more.
  void stop();

  /// The peer has said farewell.
  [[nodiscard]] bool has_left(int peer) const;
  /// A connection broke without a farewell.
  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_acquire); }
  /// Gloo's words for it; "" if none did.
  [[nodiscard]] std::string loss() const;

  /// Tells all peers that this rank leaves in order. Blocks for 50 ms at most.
  void say_farewell();

 private:
  void loop();

  int rank_;
  Changed changed_;
  std::vector<std::uint8_t> farewells_;  ///< By rank: 1 when it has left.
  std::uint8_t farewell_ = 1;            ///< What is sent.
  std::atomic<bool> ending_{false};
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string loss_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;  ///< After the memory it stands for.
  std::thread thread_;
};

/// The connections of one rank on one channel, and the protocol of an exchange on them.
///
/// An exchange with a peer is: each side sends the other its header (identity, sizes, and the bytes
/// themselves if they are few); headers are compared; what did not fit follows. With a peer on
/// another machine headers and data, in chunks, go over the connection. With a local one (see
/// agree_on_local()) the header goes through shared memory, the receiver reads the data out of the
/// sender's memory and says so there, and the sender waits for that. Every message has a slot of
/// its own: the pair's number of exchanges and the chunk. So the n-th exchange of one side meets
/// the n-th of the other whatever they are, and a message that was left over meets nobody. What is
/// for remote peers is posted first and waited for last: it travels meanwhile.
///
/// One Gloo buffer stands for the whole address space: all messages are offsets in it, so one wait
/// sees whichever comes first, one abort ends it, and when it is destroyed no thread of Gloo
/// touches borrowed memory any more. A death or an abort wakes every wait, whoever it is for, and a
/// rank that leaves in order disturbs none: GlooWatch, whose thread rings the inbox and ends waits
/// on the buffer.
///
/// Threading: one owner; abort() is safe from any thread.
class TcpLink final : public ChannelLink {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `context` is connected to all ranks, through `device`, which lives as long as any of its
  /// links. `timeout`: longest time in which nothing arrives, until set_limit().
  TcpLink(std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<gloo::Context> context,
          Milliseconds timeout);
  ~TcpLink() override;

  /// Starts to watch the connections. Errors: failure (one is broken).
  [[nodiscard]] Status open();

  [[nodiscard]] Status run(const CollectiveIdentity& identity, const Transfer& transfer) override;
  /// Which ranks are local from the next exchange on: see agree_on_local(). `channel` has an inbox
  /// of its own. Once, between two exchanges.
  void set_local(std::size_t channel, const LocalRanks& local);

  /// From the next exchange on, the longest time in which nothing arrives; none: as long as it
  /// takes. Between two exchanges.
  void set_limit(std::optional<Milliseconds> limit);

  /// Exchanges headers with everybody: returns when all ranks have got here.
  [[nodiscard]] Status barrier(const CollectiveIdentity& identity);

  /// Between two exchanges, for whoever moves bytes another way: why nothing will come from one of
  /// `peers` any more ("cancelled: ..", "lost rank 2 (..)"); none while all is well.
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
        : identity(of),
          transfer(moved),
          peers(std::move(others)),
          to_receive(static_cast<std::size_t>(ranks), 0),
          to_send(to_receive) {}

    const CollectiveIdentity& identity;
    const Transfer& transfer;
    std::vector<int> peers;  ///< Ascending: the next two together.
    std::vector<int> local;
    std::vector<int> remote;
    bool headers_done = false;
    std::vector<std::size_t> to_receive;  ///< By rank: messages posted and not known to have come.
    std::vector<std::size_t> to_send;     ///< The same of all messages sent.
    std::optional<std::string> lost;      ///< Who was, when that was noticed.
  };
  /// Whether what is waited for has come from a peer. An error ends the exchange.
  using Arrived = std::function<Result<bool>(int peer)>;

  [[nodiscard]] Status run_with(const CollectiveIdentity& identity, const Transfer& transfer,
                                std::vector<int> peers);
  [[nodiscard]] Status exchange_headers(Exchange& exchange);
  [[nodiscard]] Status exchange_data(Exchange& exchange);
  [[nodiscard]] Status compare(const Exchange& exchange, int peer) const;
  [[nodiscard]] Status compare_if_arrived(const Exchange& exchange, int peer) const;
  void take_small(const Exchange& exchange, int peer) const;
  [[nodiscard]] PairClaim own_claim(const Exchange& exchange, int peer) const;

  // Over the connections.
  void post_header(Exchange& exchange, int peer);
  void post_chunks(Exchange& exchange, int peer, bool receive);
  /// Waits for one that has been received, or sent. False: none comes. Throws what Gloo throws.
  [[nodiscard]] bool next_message(Exchange& exchange, bool receive, int& peer);
  [[nodiscard]] Status wait_message(Exchange& exchange, bool receive, int& peer);
  [[nodiscard]] Status wait_receives(Exchange& exchange, std::size_t count);
  [[nodiscard]] Status wait_sends(Exchange& exchange);

  // With ranks of this machine.
  [[nodiscard]] bool is_local(int peer) const { return inbox_ && inbox_->reaches(peer); }
  /// The number of the exchange under way with that peer.
  [[nodiscard]] std::uint64_t number(int peer) const;
  void send_local_header(const Exchange& exchange, int peer);
  [[nodiscard]] bool take_local_header(int peer);
  [[nodiscard]] Status wait_local_headers(Exchange& exchange);
  [[nodiscard]] Status read_local(const Exchange& exchange);
  [[nodiscard]] Status wait_taken(const Exchange& exchange);
  [[nodiscard]] Status wait_local(const Exchange& exchange, std::vector<int> awaited,
                                  const Arrived& arrived);
  /// Whether that peer reads the bytes for it here, and has not said yet that it has.
  [[nodiscard]] bool untaken(const Exchange& exchange, int peer) const;

  [[nodiscard]] std::optional<std::string> aborted() const;
  /// What went wrong: who is to blame, in words. Lets go of the memory.
  [[nodiscard]] Error blame(const Exchange& exchange, const std::string& what, bool timed_out);
  [[nodiscard]] std::string silent_ranks(const Exchange& exchange) const;
  [[nodiscard]] std::string broken_ranks(const std::vector<int>& peers);
  void release_memory();
  /// Of the owner, under way or to come: it looks again. `remote`: also ones of Gloo. With the
  /// lock.
  void end_waits(bool remote);

  void post_receive(int peer, std::uint64_t slot, const std::byte* place, std::size_t bytes);
  void post_send(int peer, std::uint64_t slot, const std::byte* from, std::size_t bytes);
  [[nodiscard]] std::uint64_t slot(int peer, std::uint64_t chunk) const;

  [[nodiscard]] std::byte* sent_header(int peer);
  [[nodiscard]] std::byte* received_header(int peer);
  [[nodiscard]] const std::byte* received_header(int peer) const;

  std::shared_ptr<gloo::transport::Device> device_;  ///< Before the context, which uses it.
  std::shared_ptr<gloo::Context> context_;
  int rank_;
  int world_size_;
  Milliseconds timeout_;
  std::vector<std::uint64_t> exchanges_;  ///< By rank: exchanges had with it.
  std::vector<std::byte> headers_;        ///< For each rank one to send and one to receive.
  DirectMemory direct_;
  std::atomic<bool> is_aborted_{false};

  mutable std::mutex mutex_;          ///< Guards what follows against abort() and the watch.
  std::optional<SharedInbox> inbox_;  ///< None: no rank is local. Set once, by the owner.
  std::unique_ptr<gloo::transport::UnboundBuffer> everything_;
  std::optional<std::string> aborted_;

  std::unique_ptr<GlooWatch> watch_;  ///< Last: its thread ends before the rest goes.
};

}  // namespace train::engine
