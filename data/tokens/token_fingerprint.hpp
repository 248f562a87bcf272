#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/tokens/token_dataset.hpp"

namespace train::data {

/// Range of bytes in the concatenated files of a split.
struct SampledBlock {
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

inline constexpr std::uint64_t kSampledBlockBytes = std::uint64_t{64} << 10;
inline constexpr std::uint64_t kSampledBlocksMost = 64;

/// Blocks of a split of `size_bytes` that its fingerprint reads: ascending, distinct. All of a
/// split of up to 4 MiB; of a larger one the first block, the last, and one at a pseudo-random
/// place in each of 62 equal parts between them. Pure.
[[nodiscard]] std::vector<SampledBlock> sampled_blocks(std::uint64_t size_bytes);

/// Digest of a file's size and sampled blocks. Errors: those of InputFile.
[[nodiscard]] Result<std::string> sampled_digest(const std::filesystem::path& path);

/// Fingerprint of the tokens: a digest (digest.hpp) of the sizes of all token files in order, the
/// bytes per token, the sampled blocks of both splits, and the full digests in meta.json for files
/// made by `data prepare`. Names and paths do not count. Without those digests, a change outside
/// the sampled blocks is not noticed. val.bin counts whenever it exists, whether or not the run
/// evaluates. Reads at most 8 MiB, for any size; blocks on the disk. Errors: those of InputFile.
[[nodiscard]] Result<std::string> token_fingerprint(const TokenDataset& dataset);

}  // namespace train::data
