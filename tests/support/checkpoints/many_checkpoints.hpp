#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "checkpoint/index/index.hpp"
#include "storage/files/digest.hpp"

namespace train::test {

/// Makes a run's directory with `count` checkpoints of steps 10, 20, … and an index with the steps
/// between, as left by a long run. The checkpoints have a manifest and no shards: enough for
/// readers of names, manifests and the index. Nothing is synced.
/// it is synced.
inline Status make_many_checkpoints(const std::filesystem::path& run, std::int64_t count) {
  namespace fs = std::filesystem;
  using checkpoint::checkpoint_name, checkpoint::Manifest, checkpoint::StepRecord;
  const fs::path checkpoints = run / "checkpoints";
  fs::create_directories(checkpoints);
  std::ofstream(run / "config.toml") << "[run]\nname = \"many\"\n";
  for (std::int64_t number = 1; number <= count; ++number) {
    Manifest manifest;
    manifest.fields.step = 10 * number;
    manifest.fields.tokens = manifest.fields.step * 4096;
    manifest.fields.lanes = 4;
    manifest.fields.micro_batch = 4;
    manifest.fields.config_text = "[run]\nname = \"many\"\n";
    manifest.config_digest = storage::digest_text(manifest.fields.config_text);
    manifest.files = {{.name = "shard-00000-of-00001.safetensors",
                       .size_bytes = 1'000'000'000,
                       .digest = storage::digest_text("")}};
    const fs::path directory = checkpoints / checkpoint_name(manifest.fields.step);
    fs::create_directory(directory);
    std::ofstream(directory / checkpoint::kManifestFileName) << checkpoint::manifest_text(manifest);
  }
  auto opened = checkpoint::open_index(run / "index", checkpoints);
  if (!opened) {
    return opened.error();
  }
  constexpr std::int64_t at_once = 20;
  for (std::int64_t step = 1; step <= 10 * count; step += at_once) {
    std::vector<StepRecord> records;
    for (std::int64_t one = step; one < step + at_once; ++one) {
      records.push_back({.step = one, .loss = 1.0, .grad_norm = 1.0, .lr = 1e-3, .tokens = one});
    }
    TRAIN_RETURN_IF_ERROR(opened->index.log_steps(records));
  }
  return opened->index.log_event("started", "a run of many checkpoints");
}

}  // namespace train::test
