#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"
#include "engine/collective/channel.hpp"
#include "engine/collective/rendezvous_store.hpp"

namespace train::engine {

struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::uint64_t generation = 0;  ///< Part of every key and of every proof.
  std::string address;           ///< IPv4, of this machine: where this rank listens.
  /// Longest time in which no rank appears or connects.
  std::chrono::milliseconds timeout{30000};
  /// A connection that carries nothing for so long, not even the kernel's answers of a machine
  /// whose process is busy, is cut. Whole seconds.
  std::chrono::seconds cut_after{120};
  /// Time limit of a connection's proof; a connection that this rank began is then begun anew.
  std::chrono::milliseconds proof_time{5000};
  /// Largest number of accepted connections without a proof, beyond the expected ones; the oldest
  /// one is closed to make room.
  std::size_t most_unauthenticated = 64;
};

/// By channel and rank; none at the own rank. Non-blocking, without Nagle's delay.
using PeerSockets = std::array<std::vector<Descriptor>, kChannelCount>;

/// Connects a rank with all others over TCP, once for each channel. The lower rank connects, the
/// higher one accepts, and both prove that they know the secret that rank 0 has left in the store
/// (peer_proof.hpp) before the connection counts.
///
/// Unproven connections to the port are harmless: each is sent a nonce, and closed as soon as it
/// sends anything but a proof, its time is over, or too many others have come. A rank whose
/// connection was closed by such a crowd begins it anew. The port is open while ranks are missing.
///
/// Blocks; `store` is used until it returns. Errors (failure): a rank has not appeared, does not
/// connect, or is not there any more: named; the address cannot be listened on.
[[nodiscard]] Result<PeerSockets> connect_mesh(RendezvousStore& store, const MeshOptions& options);

/// From here on the kernel asks the other end of an idle connection now and then whether it is
/// there; a connection over which nothing comes back for `limit`, asked or sent, breaks with
/// ETIMEDOUT. That tells a peer that is slow from a link that was cut: the kernel of a machine
/// answers for its processes, however busy they are, and over a cut link no answer comes.
/// REQUIRES: 4 s or more. Errors (failure): the kernel refuses.
[[nodiscard]] Status find_cut(int socket, std::chrono::seconds limit);

}  // namespace train::engine
