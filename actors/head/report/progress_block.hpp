#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace train::actors {

/// What people want to know of a run while they look at its terminal.
struct ProgressView {
  std::int64_t step = 0, steps = 0, ranks = 0;
  double remaining_s = 0.0;
  std::deque<double> losses = {};  ///< Of the newest steps, oldest first.
  double grad_norm = 0.0, lr = 0.0, tokens_per_second = 0.0;
  double mfu = 0.0;          ///< 0: not known.
  std::string saved = {};    ///< Of the newest checkpoint; empty: none yet.
  std::string stalled = {};  ///< Who waits for whom; empty: nothing stands still.
};

/// A bar, a small curve of the loss, and numbers; lines of at most `columns` letters. Pure.
[[nodiscard]] std::vector<std::string> progress_block(const ProgressView& view,
                                                      std::size_t columns);

/// One of eight blocks for each value, from the least to the most; the newest `letters` of them.
[[nodiscard]] std::string sparkline(const std::deque<double>& values, std::size_t letters);

}  // namespace train::actors
