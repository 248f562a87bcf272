#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bench/ranks/ranks_support.hpp"

// Parts shared by the rows of bench_recovery.
namespace train::bench {

/// Arguments of `actortrain run configs/quickstart.toml`, after the program's name.
[[nodiscard]] Words run_words(const Workplace& place, const std::string& name, const Words& keys);

/// Content of a file; empty if it does not exist.
[[nodiscard]] std::string text_of(const std::filesystem::path& file);

/// Process of a rank: the launcher's child with its number among its arguments; 0: none yet.
[[nodiscard]] pid_t find_worker(pid_t launcher, int rank);
/// find_worker(). Throws std::runtime_error if there is none.
[[nodiscard]] pid_t worker_of(pid_t launcher, int rank);

/// Percentile of `values`; `part` 0.99 is the value that 99 % do not exceed. REQUIRES: not empty.
[[nodiscard]] double percentile(std::vector<double> values, double part);

}  // namespace train::bench
