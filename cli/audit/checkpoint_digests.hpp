#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"

namespace train::cli {

/// A checkpoint as its bytes are.
struct CheckpointContent {
  checkpoint::Verification found;
  std::vector<std::string> tensors;    ///< Sorted names: engine::tensor_names() of its run.
  std::vector<std::uint64_t> digests;  ///< engine::tensor_digests() of its run, if it is whole.
};

/// Reads every byte of the checkpoint in `directory` once, with memory for some MiB. Blocks.
/// Damage is a finding; errors as verify_checkpoint().
[[nodiscard]] Result<CheckpointContent> read_content(const std::filesystem::path& directory);

}  // namespace train::cli
