#include "data/tokens/token_fingerprint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>
#include <system_error>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/input_file.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

struct SplitFile {
  fs::path path;
  std::uint64_t size_bytes = 0;
  std::string encoding = {};
};

/// Pseudo-random number from size and index.
std::uint64_t drawn(std::uint64_t size_bytes, std::uint64_t index) {
  const std::array<std::uint64_t, 2> key = {size_bytes, index};
  return storage::short_digest(std::as_bytes(std::span(key)));
}

/// Digest of the blocks of sampled_blocks(). Only files with such blocks are opened, one at a time:
/// a process may not be able to open all.
Result<std::string> sample_digest(std::span<const SplitFile> files, std::uint64_t size_bytes) {
  const std::vector<SampledBlock> blocks = sampled_blocks(size_bytes);
  storage::StreamingDigest digest;
  std::vector<std::byte> bytes(kSampledBlockBytes);
  auto block = blocks.begin();
  std::uint64_t begin = 0;  // Begin of the file within the split.
  for (const SplitFile& file : files) {
    const std::uint64_t end = begin + file.size_bytes;
    if (block == blocks.end() || block->offset >= end) {
      begin = end;
      continue;
    }
    const auto input = TRAIN_TRY(storage::InputFile::open(file.path));
    while (block != blocks.end() && block->offset < end) {
      const std::uint64_t first = std::max(block->offset, begin);
      const std::uint64_t last = std::min(block->offset + block->size_bytes, end);
      const auto piece = std::span(bytes).first(last - first);
      TRAIN_RETURN_IF_ERROR(input.read(first - begin, piece));
      digest.update(piece);
      if (block->offset + block->size_bytes > end) {
        break;  // The rest is in the next file.
      }
      ++block;
    }
    begin = end;
  }
  return digest.finish();
}

/// Text of one split for the digest.
Result<std::string> split_text(std::span<const SplitFile> files,
                               const std::optional<std::string>& whole_digest) {
  std::string text;
  std::uint64_t size_bytes = 0;
  for (const SplitFile& file : files) {
    text += fmt::format(" {}{}", file.size_bytes, file.encoding);
    size_bytes += file.size_bytes;
  }
  const auto sample = TRAIN_TRY(sample_digest(files, size_bytes));
  return fmt::format("{}\nsample {}\nwhole {}\n", text, sample, whole_digest.value_or("-"));
}

}  // namespace

std::vector<SampledBlock> sampled_blocks(std::uint64_t size_bytes) {
  constexpr std::uint64_t kLength = kSampledBlockBytes;
  std::vector<SampledBlock> blocks;
  if (size_bytes <= kSampledBlocksMost * kLength) {
    for (std::uint64_t offset = 0; offset < size_bytes; offset += kLength) {
      blocks.push_back({offset, std::min(kLength, size_bytes - offset)});
    }
    return blocks;
  }
  constexpr std::uint64_t kParts = kSampledBlocksMost - 2;
  const std::uint64_t part = (size_bytes - 2 * kLength) / kParts;  // At least kLength.
  blocks.push_back({0, kLength});
  for (std::uint64_t i = 0; i < kParts; ++i) {
    const std::uint64_t within = drawn(size_bytes, i) % (part - kLength + 1);
    blocks.push_back({kLength + i * part + within, kLength});
  }
  blocks.push_back({size_bytes - kLength, kLength});
  return blocks;
}

Result<std::string> sampled_digest(const fs::path& path) {
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  const SplitFile only{path, file.size_bytes()};
  const auto text = TRAIN_TRY(split_text(std::span(&only, 1), std::nullopt));
  return storage::digest_text(text);
}

Result<std::string> token_fingerprint(const TokenDataset& dataset) {
  const TokenSplit& split = dataset.train();
  const DatasetFacts& facts = dataset.facts();
  std::vector<SplitFile> train;
  for (std::size_t file = 0; file < split.file_count(); ++file) {
    train.push_back({split.path(file), split.size_bytes_of(file), split.encoding_of(file)});
  }
  const auto train_text = TRAIN_TRY(split_text(train, facts.train_digest));
  const TokenSplit& opened = dataset.validation();
  std::vector<SplitFile> validation;
  for (const fs::path& path : dataset.validation_files()) {
    std::error_code code;
    const std::uint64_t size_bytes = fs::file_size(path, code);
    if (code) {
      return storage::os_error(storage::Access::read, path, code.value());
    }
    const std::size_t file = validation.size();
    validation.push_back(
        {path, size_bytes, file < opened.file_count() ? opened.encoding_of(file) : ""});
  }
  const auto val_text = TRAIN_TRY(split_text(validation, facts.val_digest));
  return storage::digest_text(
      fmt::format("tokens of {} bytes\ntrain{}val{}", facts.token_bytes, train_text, val_text));
}

}  // namespace train::data
