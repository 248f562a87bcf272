// Listing of a run with very many checkpoints.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "bench/checkpoint/checkpoint_rows.hpp"
#include "bench/support/timed_run.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/index/index.hpp"
#include "storage/files/digest.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kCheckpoints = 10'000;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) {
    throw std::runtime_error(fmt::format("cannot write {}", path.string()));
  }
}

/// Makes a checkpoint directory with an ordinary manifest; its shard is always the same small file.
void make_checkpoint(const fs::path& checkpoints, const fs::path& shard, std::int64_t step) {
  const fs::path directory = checkpoints / checkpoint::checkpoint_name(step);
  fs::create_directory(directory);
  checkpoint::Manifest manifest;
  manifest.fields.step = step;
  manifest.fields.tokens = step * 4096;
  manifest.fields.lanes = 4;
  manifest.fields.micro_batch = 4;
  manifest.fields.kernel_set = "bench";
  manifest.config_digest = storage::digest_text(manifest.fields.config_text);
  manifest.files.push_back({.name = "shard-00000-of-00001.safetensors",
                            .size_bytes = fs::file_size(shard),
                            .digest = storage::digest_text("")});
  fs::create_hard_link(shard, directory / manifest.files.front().name);
  write_text(directory / checkpoint::kManifestFileName, checkpoint::manifest_text(manifest));
}

/// Makes the directory of a run of a few steps; the product itself makes the index.
void fill_run(const fs::path& run) {
  const fs::path checkpoints = run / "checkpoints";
  fs::remove_all(checkpoints);
  fs::remove_all(run / "index");
  fs::create_directory(checkpoints);
  write_text(run / "one.bin", "bytes");
  for (std::int64_t i = 1; i <= kCheckpoints; ++i) {
    make_checkpoint(checkpoints, run / "one.bin", 10 * i);
  }
  const auto opened = checkpoint::open_index(run / "index", checkpoints);
  if (!opened) {
    throw std::runtime_error(opened.error().message);
  }
  if (opened->index.committed().size() != static_cast<std::size_t>(kCheckpoints)) {
    throw std::runtime_error("the index did not take the checkpoints");
  }
}

}  // namespace

void list_row(const Workplace& place) {
  (void)run_timed(place, {.keys = {"run.steps=2"}, .name = "many", .keep = true});
  const fs::path run = place.directory() / "runs" / "many";
  const auto begin = Clock::now();
  fill_run(run);
  print_result("made, s",
               fmt::format("{:.1f}", std::chrono::duration<double>(Clock::now() - begin).count()));
  const fs::path out = place.directory() / "list.txt";
  const std::string command = fmt::format("'{}/actortrain' checkpoints list '{}' > '{}'",
                                          ACTORTRAIN_BINARY_DIR, run.string(), out.string());
  Values wall_ms;
  for (int round = 0; round < 9; ++round) {
    const auto start = Clock::now();
    if (std::system(command.c_str()) != 0) {
      throw std::runtime_error("actortrain checkpoints list failed");
    }
    wall_ms.add(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::ifstream lines(out);
  std::int64_t count = 0;
  for (std::string line; std::getline(lines, line);) {
    ++count;
  }
  if (count < kCheckpoints) {
    throw std::runtime_error(fmt::format("the list has {} lines", count));
  }
  print_at_most("wall of the whole process, ms", wall_ms, 100.0);
  fs::remove_all(run);
}

}  // namespace train::bench
