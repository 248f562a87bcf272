#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.hpp"
#include "engine/collective/collective.hpp"
#include "engine/collective/gloo_direct.hpp"
#include "engine/collective/transfer.hpp"

namespace gloo {
class Context;
namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport
}  // namespace gloo

namespace train::engine {

/// The connections of one rank on one channel, and the protocol of an exchange on them.
///
/// An exchange with a peer is: each side posts a receive for the other's header and sends its own
/// (identity, sizes, and the bytes themselves if they are few); headers are compared; what did not
/// fit follows in chunks, into its place; or, where GlooDirect works, the receiver reads it out of
/// the sender's memory, says so, and the sender waits for that. Every message has a slot of its
/// own: the pair's number of exchanges and the chunk. So the n-th exchange of one side meets the
/// n-th of the other whatever they are, and a message that was left over meets nobody.
///
/// One Gloo buffer stands for the whole address space: all messages are offsets in it, so one wait
/// sees whichever comes first, one abort ends it, and when it is destroyed no thread of Gloo
/// touches borrowed memory any more. On it lies a receive from each peer that only the peer's
/// farewell answers: Gloo tells nobody but pending operations that a connection broke, and counts a
/// receive that it has begun as no longer pending. So a death wakes every wait, whoever it is for,
/// and a rank that leaves in order disturbs none.
///
/// Threading: one owner; abort() is safe from any thread.
class GlooLink {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `context` is connected to all ranks, through `device`, which lives as long as any of its
  /// links. `timeout`: longest time in which nothing arrives.
  GlooLink(std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<gloo::Context> context,
           Milliseconds timeout);
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;
  ~GlooLink();

  /// Posts the receives of farewells. Errors: failure (a connection is broken).
  [[nodiscard]] Status open();

  /// Runs one exchange to its end; blocks. After a failure the memory of the transfer is not
  /// touched any more, and nothing but disconnect() may be called. Errors: failure naming the rank
  /// that differs, that closed the connection or was waited for.
  [[nodiscard]] Status run(const CollectiveIdentity& identity, const Transfer& transfer);
  /// Which ranks read each other's memory from the next exchange on: see agree_on_direct().
  void set_direct(std::vector<DirectPeer> peers) { direct_.set(std::move(peers)); }

  /// Exchanges headers with everybody: returns when all ranks have got here.
  [[nodiscard]] Status barrier(const CollectiveIdentity& identity);

  /// Ends a run() under way, and later ones, with `reason`.
  void abort(const std::string& reason);
  /// Closes the connections; may take a few milliseconds per rank. Peers that wait for this rank
  /// fail; without a farewell all do that wait for anybody.
  void disconnect(bool farewell);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world_size() const { return world_size_; }

 private:
  /// One exchange under way.
  struct Exchange {
    const CollectiveIdentity& identity;
    const Transfer& transfer;
    std::vector<int> peers;
    bool headers_done = false;
    std::vector<std::size_t> to_receive;  ///< By rank: messages posted and not known to have come.
    std::vector<std::size_t> to_send;     ///< The same of all messages sent.
  };

  [[nodiscard]] Status run_with(Exchange exchange);
  [[nodiscard]] Status exchange_headers(Exchange& exchange);
  [[nodiscard]] Status exchange_data(Exchange& exchange);
  void post_header(Exchange& exchange, int peer);
  void post_chunks(Exchange& exchange, int peer, bool receive);
  [[nodiscard]] std::size_t post_data_receives(Exchange& exchange, int peer);
  [[nodiscard]] Status read_direct(Exchange& exchange);
  [[nodiscard]] Status compare(const Exchange& exchange, int peer) const;
  [[nodiscard]] Status compare_if_arrived(const Exchange& exchange, int peer) const;
  void take_small(const Exchange& exchange, int peer) const;
  /// Whether the bytes for that peer are read by it, and it has not said yet that it has.
  [[nodiscard]] bool untaken(const Exchange& exchange, int peer) const;
  [[nodiscard]] PairClaim own_claim(const Exchange& exchange, int peer) const;

  [[nodiscard]] Status wait_receives(Exchange& exchange, std::size_t count);
  [[nodiscard]] Status wait_sends(Exchange& exchange);

  [[nodiscard]] std::optional<std::string> aborted() const;
  /// After an exception of Gloo: who is to blame, in words. Lets go of the memory.
  [[nodiscard]] Error blame(const Exchange& exchange, const std::string& what, bool timed_out);
  [[nodiscard]] std::string silent_ranks(const Exchange& exchange) const;
  [[nodiscard]] std::string broken_ranks(const Exchange& exchange);
  void release_memory();
  void say_farewell();
  /// Farewells that have come, counted or about to be.
  [[nodiscard]] std::size_t farewells() const;
  [[nodiscard]] bool has_left(int peer) const;

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
  std::vector<std::uint8_t> farewells_;   ///< By rank: 1 when it has left.
  std::uint8_t farewell_ = 0;             ///< What is sent.
  std::vector<std::uint8_t> taken_;       ///< By rank: 1 when it has read what was offered.
  std::uint8_t taking_ = 1;               ///< What is sent then.
  GlooDirect direct_;
  std::size_t expected_ = 0;   ///< Messages asked for so far, farewells left out.
  std::size_t completed_ = 0;  ///< Receives that have ended so far, farewells included.

  mutable std::mutex mutex_;  ///< Guards what follows against abort().
  std::unique_ptr<gloo::transport::UnboundBuffer> everything_;
  std::optional<std::string> aborted_;
};

}  // namespace train::engine
