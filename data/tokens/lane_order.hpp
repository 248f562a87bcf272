#pragma once

#include <cstdint>
#include <optional>

namespace train::data {

/// Bijection of [0, size): a shuffle that is a pure function of its arguments (ST-5). O(1) time and
/// memory: a Feistel network on the next even power of two, repeated until the value is inside
/// (cycle walking; fewer than 4 rounds on average). REQUIRES: position < size.
[[nodiscard]] std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t epoch,
                                           std::uint64_t position, std::uint64_t size);

/// Training sequence of each lane's rows (ST-4), independent of ranks and history.
///
/// With g = (step * lanes + lane) * micro_batch + row, epoch g / sequences reads each sequence
/// exactly once, in an order of its own.
struct LaneOrder {
  std::uint64_t seed = 0;
  std::uint64_t sequences = 0;  ///< Sequences of the training split; at least 1.
  std::uint64_t lanes = 0;
  std::uint64_t micro_batch = 0;  ///< Rows (sequences) per lane.

  /// `step` counts from 0. REQUIRES: lane < lanes, row < micro_batch.
  [[nodiscard]] std::uint64_t sequence(std::uint64_t step, std::uint64_t lane,
                                       std::uint64_t row) const;
  /// Epoch of the first row of a step.
  [[nodiscard]] std::uint64_t epoch(std::uint64_t step) const;
};

/// Evaluation sequence of a row: the first ones in file order, each once, the same every time;
/// nullopt for rows after the last.
[[nodiscard]] std::optional<std::uint64_t> validation_sequence(std::uint64_t lane,
                                                               std::uint64_t row,
                                                               std::uint64_t micro_batch,
                                                               std::uint64_t sequences);

}  // namespace train::data
