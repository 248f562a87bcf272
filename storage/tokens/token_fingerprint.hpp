#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/tokens/token_dataset.hpp"

namespace train::storage {

/// A range of bytes of a split: of its files, one after the other.
struct SampledBlock {
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
};

inline constexpr std::uint64_t sampled_block_bytes = std::uint64_t{64} << 10;
inline constexpr std::uint64_t sampled_blocks_most = 64;

/// The blocks of a split of `size_bytes` that its fingerprint reads: ascending, none twice. All of
/// a split of up to 4 MiB; of a larger one the first block, the last one, and one at a
/// pseudo-random place of each of 62 equal parts between them. Pure.
[[nodiscard]] std::vector<SampledBlock> sampled_blocks(std::uint64_t size_bytes);

/// A digest of the size of a file and its sampled blocks. Errors: those of InputFile.
[[nodiscard]] Result<std::string> sampled_digest(const std::filesystem::path& path);

/// What tells these tokens from others: a digest (digest.hpp) of the sizes of all token files in
/// their order, the bytes of a token, the sampled blocks of both splits, and the digests of all
/// bytes that meta.json has of files made by `data prepare`. Names and places of files are no part
/// of it. A changed byte outside the sampled blocks of files without those digests goes unseen.
/// val.bin counts whenever it is there, whether or not the run evaluates.
/// Reads at most 8 MiB, whatever the size; blocks on the disk. Errors: those of InputFile.
[[nodiscard]] Result<std::string> token_fingerprint(const TokenDataset& dataset);

}  // namespace train::storage
