#pragma once

#include <cstdint>
#include <optional>

namespace train::storage {

/// Maps position to index, one to one, on [0, size): a shuffle that is a pure function of its
/// arguments (ST-5). O(1) time and memory: a Feistel network on the next even power of two, applied
/// again until the value falls inside (cycle walking; fewer than 4 rounds of it on average).
/// REQUIRES: position < size.
[[nodiscard]] std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t epoch,
                                           std::uint64_t position, std::uint64_t size);

/// Which training sequence a row of a lane reads (ST-4): never a matter of rank or history.
///
/// With g = (step * lanes + lane) * micro_batch + row, epoch g / sequences reads each sequence
/// exactly once, in an order of its own.
struct LaneOrder {
  std::uint64_t seed = 0;
  std::uint64_t sequences = 0;  ///< Of the training split; at least 1.
  std::uint64_t lanes = 0;
  std::uint64_t micro_batch = 0;  ///< Rows (sequences) of a lane.

  /// step counts from 0. REQUIRES: lane < lanes, row < micro_batch.
  [[nodiscard]] std::uint64_t sequence(std::uint64_t step, std::uint64_t lane,
                                       std::uint64_t row) const;
  /// Epoch of the first row of a step.
  [[nodiscard]] std::uint64_t epoch(std::uint64_t step) const;
};

/// Evaluation reads the same sequences every time, in file order, from the first on, each once: a
/// row of a lane behind the last of them has none.
[[nodiscard]] std::optional<std::uint64_t> validation_sequence(std::uint64_t lane,
                                                               std::uint64_t row,
                                                               std::uint64_t micro_batch,
                                                               std::uint64_t sequences);

}  // namespace train::storage
