#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/result.hpp"
#include "engine/collective/channel.hpp"

namespace train::engine {

/// The bytes of one collective as one rank sees them: send[r] goes to rank r, receive[r] comes from
/// rank r; empty ranges move nothing. Sizes may differ from pair to pair. send[own] and
/// receive[own] are equally long and are copied. An all-gather sends the same range to all ranks.
struct Transfer {
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;

  /// Bytes that leave this rank.
  [[nodiscard]] std::size_t sent_bytes(int rank) const;
};

/// Moves bytes between the ranks of one channel of one generation: all-gather and all-to-all of
/// byte ranges.
///
/// exchange() returns at once; `done` is called exactly once per call, on a thread of the transport
/// (or inside the call), with the failure if there was one. Memory is borrowed until then; `done`
/// may ask for the next exchange, but neither throw nor destroy the object. Exchanges of one object
/// run in call order. Before any byte of the transfer reaches its place, the identity (and the
/// sizes) are compared with those of every rank the transfer has bytes for or from; a difference is
/// a failure that names both sides. A failure is final: everything asked for later fails with it,
/// and so does, on its turn, whatever another rank wants to exchange with this one. The destructor
/// fails what is under way, calls every outstanding `done` and waits for no peer.
/// Threading: one owner calls exchange(); cancel() is safe from any thread.
class Collectives {
 public:
  using Done = std::function<void(Status)>;

  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

  virtual void exchange(const CollectiveIdentity& identity, Transfer transfer, Done done) = 0;

  /// Fails what is under way and everything asked for later, with `reason` in the message.
  virtual void cancel(const std::string& reason) = 0;

 protected:
  Collectives() = default;
};

/// One transport per channel, by Channel.
using ChannelTransports = std::array<std::unique_ptr<Collectives>, kChannelCount>;

/// All ranks of one channel in one process. No thread of its own: the call with which an exchange
/// becomes complete copies for all and calls every `done`, with no lock held; a `done` that asks
/// for more leaves that work to the call it came from. Index = rank. Any number of threads, one
/// included. A world of one copies its own range.
[[nodiscard]] std::vector<std::unique_ptr<Collectives>> make_inproc(int world_size);

/// Checks the shape of a transfer: one range per rank each way, own ranges equally long.
/// Throws CheckFailed.
void check_transfer(const Transfer& transfer, int rank, int world_size);

/// Copies the range that a rank sends to itself; nothing when both are the same memory.
void copy_own(const Transfer& transfer, int rank);

/// Peers that the transfer sends bytes to or receives bytes from, ascending.
[[nodiscard]] std::vector<int> peers_of(const Transfer& transfer, int rank);

/// Claim of one side of a pair about the exchange; the claims of both sides have to match.
struct PairClaim {
  int rank = 0;
  CollectiveIdentity identity;
  std::size_t sent_bytes = 0;      ///< To the other side.
  std::size_t received_bytes = 0;  ///< From the other side.
};

[[nodiscard]] bool agree(const PairClaim& own, const PairClaim& peer);
/// "rank 0 is at generation 1 command 7 reduce 2 hash .., sends 8 bytes, ..; rank 1 is at ..".
[[nodiscard]] Error disagreement(const PairClaim& own, const PairClaim& peer);

}  // namespace train::engine
