#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/collective.hpp"
#include "engine/collective/rendezvous_store.hpp"

namespace train::engine {

struct TcpOptions {
  int rank = 0;
  int world_size = 1;
  std::string interface;         ///< Name of a network interface; empty: loopback, 127.0.0.1.
  std::uint64_t generation = 0;  ///< Part of every key, so that an older one's are never found.
  /// While they connect, the longest silence of a rank: it has not appeared, or says nothing.
  std::chrono::milliseconds timeout{30000};
  /// Once they are connected, the longest time in which nothing of an exchange arrives. None: a
  /// rank that lives is waited for as long as it takes; that one is lost its connections say.
  std::optional<std::chrono::milliseconds> exchange_limit = {};
  /// A connection that carries nothing for so long, not even the kernel's answers of a machine
  /// whose process is busy, is cut, and its rank lost. Whole seconds.
  std::chrono::seconds cut_after{120};
  /// Let ranks on this machine read each other's memory where the kernel permits it (DirectMemory).
  bool direct = true;
  /// True if the channels `gather` and `reduce` move memory of CUDA devices, one per rank, from
  /// device to device by NCCL (NcclLink); `control` moves memory of the host.
  bool nccl = false;
};

/// Connects the ranks of one generation over TCP: one connection per channel and pair of ranks, one
/// thread per channel and one that watches all connections. A world of one gets loopbacks.
/// The connections are kept alive by the kernel, which finds a link that was cut.
///
/// Blocks until all ranks are connected on all channels and have said so, at most a few times
/// `timeout`. `store` is used until it returns. Any number of generations may follow one another,
/// or live side by side, in one process.
/// Errors: user (no such interface); failure (a rank that does not appear: named; an address that
/// cannot be reached). Who joins has proven that it can read the store (connect_mesh()); but bytes
/// are neither encrypted nor signed, so `interface` has to be a private one. Memory is read by
/// processes of the same user only; the kernel sees to that.
///
/// The transports: sizes up to 4 KiB per pair travel with the identity, larger ones after it: over
/// the connection, or copied out of the memory of a rank on the same machine. The death of any rank
/// fails exchanges under way on every rank connected to it.
[[nodiscard]] Result<ChannelTransports> make_tcp(RendezvousStore& store, const TcpOptions& options);

}  // namespace train::engine
