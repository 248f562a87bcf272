#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "checkpoint/index/index.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// History of a run.
struct LongPast {
  std::int64_t lines = 60'000;  ///< Lines in metrics.jsonl.
  std::size_t line_bytes = 900;
  std::int64_t steps = 20'000;  ///< Steps in the journal, with norms and digests.
  std::size_t units = 6;
  std::size_t tensors = 40;
};

/// Extends the history of the run in `directory`, which must not be training: adds lines in front
/// of its metrics, and steps to its journal, of a start that got further. Its resume point stays
/// the same. Blocks.
inline void lengthen(const std::filesystem::path& directory, const LongPast& past) {
  const std::filesystem::path metrics = directory / "metrics.jsonl";
  const std::string own = read_bytes(metrics);
  std::string line = R"({"step":1,"loss":1.5,"filling":")";
  line += std::string(past.line_bytes - std::min(past.line_bytes, line.size() + 3), 'x') + "\"}\n";
  std::ofstream file(metrics, std::ios::binary);
  for (std::int64_t i = 0; i < past.lines; ++i) {
    file << line;
  }
  file << own;
  file.close();
  TRAIN_CHECK(file.good());

  auto index = checkpoint::open_index(directory / "index", directory / "checkpoints");
  TRAIN_CHECK(index.ok());
  std::uint64_t bits = 1;
  const auto numbers = [&bits](std::size_t count) {
    std::vector<std::uint64_t> all(count);
    std::ranges::generate(all, [&bits] { return bits = bits * 6364136223846793005U + 1; });
    return all;
  };
  constexpr std::int64_t kAtOnce = 500;
  for (std::int64_t done = 0; done < past.steps; done += kAtOnce) {
    std::vector<checkpoint::StepRecord> steps;
    for (std::int64_t step = done; step < std::min(done + kAtOnce, past.steps); ++step) {
      steps.push_back({.step = 5'000 + step,
                       .loss = 1.5,
                       .unit_grad_norms = numbers(past.units),
                       .tensor_digests = numbers(past.tensors)});
    }
    TRAIN_CHECK(index->index.log_steps(steps).ok());
  }
}

}  // namespace train::test
