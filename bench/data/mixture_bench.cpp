// Cost of mixing three sources, 5 : 3 : 1: opening in the middle of a long run, and what the rows
// of a step take more than those of one directory. The best of several rounds, in CPU seconds,
// which are independent of the machine's load. Usage: bench_mixture.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include "data/lanes/mixture_order.hpp"
#include "data/lanes/open_lanes.hpp"

namespace {

using namespace train;
using namespace train::data;
namespace fs = std::filesystem;

constexpr int kRounds = 7;
constexpr std::int64_t kLength = 1024;
constexpr std::int64_t kLanes = 4;
constexpr std::int64_t kMicroBatch = 8;
constexpr std::int64_t kSteps = 50;

/// CPU seconds of the fastest of several calls.
template <class Work>
double best_seconds(const Work& work) {
  double best = std::numeric_limits<double>::max();
  for (int round = 0; round < kRounds; ++round) {
    const std::clock_t begin = std::clock();
    work();
    best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

/// Opens sources of 10^9 rows each where the run has read as many, and reads a block.
void measure_opening() {
  MixtureOrder::Options options{.seed = 1, .lanes = 64, .micro_batch = 8};
  options.rows = {1'000'000'000, 1'000'000'007, 999'999'937};
  options.stages = {{.from_step = 0, .sources = {0, 1, 2}, .weights = {700001, 299998, 1}},
                    {.from_step = 900'000, .sources = {0, 1, 2}, .weights = {5, 3, 1}}};
  const std::uint64_t step = 1'000'000'000 / (options.lanes * options.micro_batch);
  std::uint64_t sum = 0;
  const double seconds = best_seconds([&] {
    const MixtureOrder order(options);
    for (std::uint64_t lane = 0; lane < options.lanes; ++lane) {
      for (std::uint64_t row = 0; row < options.micro_batch; ++row) {
        sum += order.draw(step, lane, row).row;
      }
    }
  });
  fmt::print("opening at row 10^9, with the 512 rows of its block: {:.3f} ms ({})\n", 1e3 * seconds,
             sum % 10);
}

void write_tokens(const fs::path& directory, std::int64_t rows) {
  fs::create_directories(directory);
  for (const char* name : {"train.bin", "val.bin"}) {
    std::ofstream file(directory / name, std::ios::binary);
    for (std::int64_t i = 0; i <= rows * kLength; ++i) {
      const auto token = static_cast<std::uint16_t>(i * 7919 % 1000);
      file.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
  }
}

configs::RunConfig config_of(const fs::path& folder, bool mixed) {
  configs::RunConfig config;
  config.data.dir = (folder / "a").string();
  config.data.sequence_length = kLength;
  config.batch.lanes = kLanes;
  config.batch.micro_batch = kMicroBatch;
  config.objective.name = "pretrain";
  config.run.steps = kSteps;
  if (mixed) {
    config.data.sources = {{.dir = (folder / "a").string(), .weight = 5},
                           {.dir = (folder / "b").string(), .weight = 3},
                           {.dir = (folder / "c").string(), .weight = 1}};
  }
  return config;
}

/// CPU microseconds of reading the lanes of a step; negative: they cannot be opened.
double microseconds_of_step(const configs::RunConfig& config) {
  const auto data = open_lanes(config, 1024);
  if (!data) {
    fmt::print(stderr, "{}\n", data.error().message);
    return -1.0;
  }
  std::vector<std::int32_t> tokens(kMicroBatch * kLength), targets(tokens.size());
  std::vector<std::int32_t> sources(kMicroBatch);
  const double seconds = best_seconds([&] {
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        static_cast<void>((*data)->read({.step = step, .lane = lane}, {.tokens = tokens,
                                                                       .targets = targets,
                                                                       .positions = {},
                                                                       .weights = {},
                                                                       .sources = sources}));
      }
    }
  });
  return 1e6 * seconds / static_cast<double>(kSteps);
}

}  // namespace

int main() {
  measure_opening();
  const fs::path folder =
      fs::temp_directory_path() / fmt::format("bench_mixture_{}", static_cast<int>(getpid()));
  write_tokens(folder / "a", 500);
  write_tokens(folder / "b", 300);
  write_tokens(folder / "c", 100);
  const double one = microseconds_of_step(config_of(folder, false));
  const double three = microseconds_of_step(config_of(folder, true));
  fs::remove_all(folder);
  if (one < 0.0 || three < 0.0) {
    return 1;
  }
  fmt::print("rows of a step, {} x {} tokens: one directory {:.0f} us, three sources {:.0f} us\n",
             kLanes * kMicroBatch, kLength, one, three);
  return 0;
}
