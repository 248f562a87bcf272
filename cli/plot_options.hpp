#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::cli {

/// actortrain plot
struct PlotOptions {
  std::vector<std::string> runs;  ///< Directories of runs, at least one.
  std::string out;                ///< Ends in .png, .svg or .csv.
  std::string what = "loss";      ///< loss, val, grad_norm, lr
  std::string x = "steps";        ///< steps, tokens, time
  std::int64_t smooth = 1;        ///< Mean of so many points up to each; 1 or more.
  bool log_x = false;
};

}  // namespace train::cli
