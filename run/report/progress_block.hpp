#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace train::run {

/// Contents of the live block on the terminal.
struct ProgressView {
  std::int64_t step = 0, steps = 0, ranks = 0;
  double remaining_s = 0.0;
  std::deque<double> losses = {};  ///< Losses of the newest steps, oldest first.
  double grad_norm = 0.0, lr = 0.0, tokens_per_second = 0.0;
  double mfu = 0.0;          ///< 0: unknown.
  std::string saved = {};    ///< Newest checkpoint; empty: none yet.
  std::string stalled = {};  ///< Wait chain of a stall; empty: no stall.
};

/// Renders a bar, a loss curve and numbers, in lines of at most `columns` characters. Pure.
[[nodiscard]] std::vector<std::string> progress_block(const ProgressView& view,
                                                      std::size_t columns);

/// Renders the newest `letters` values, each as one of eight blocks from minimum to maximum.
[[nodiscard]] std::string sparkline(const std::deque<double>& values, std::size_t letters);

}  // namespace train::run
