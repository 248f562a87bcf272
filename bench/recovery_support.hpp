#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/ranks_support.hpp"

// What the rows of bench_recovery share.
namespace train::bench {

/// The words of `actortrain run configs/quickstart.toml` after the program's name.
[[nodiscard]] Words run_words(const Workplace& place, const std::string& name, const Words& keys);

/// Empty if there is no such file.
[[nodiscard]] std::string text_of(const std::filesystem::path& file);

/// The process of a rank: a child of the launcher with its number among its words; 0: none yet.
[[nodiscard]] pid_t find_worker(pid_t launcher, int rank);
/// The same. Throws std::runtime_error if there is none.
[[nodiscard]] pid_t worker_of(pid_t launcher, int rank);

/// `part`: 0.99 for the value that 99 % of `values` do not exceed. REQUIRES: not empty.
[[nodiscard]] double percentile(std::vector<double> values, double part);

}  // namespace train::bench
