#pragma once

#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "engine/collective/collective.hpp"

namespace train::engine {

/// Checks the shape of a transfer: one range per rank each way, own ranges equally long.
/// Throws CheckFailed.
void check_transfer(const Transfer& transfer, int rank, int world_size);

/// Copies the range that a rank sends to itself; nothing when both are the same memory.
void copy_own(const Transfer& transfer, int rank);

/// The other ranks that the transfer has bytes for or from, ascending.
[[nodiscard]] std::vector<int> peers_of(const Transfer& transfer, int rank);

/// What one side of a pair means to do; both sides have to say the same.
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
