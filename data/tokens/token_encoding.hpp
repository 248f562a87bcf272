#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "base/result.hpp"

namespace train::data {

/// Place and width of a token file's ids, little-endian.
struct TokenEncoding {
  std::uint64_t first_byte = 0;
  std::uint64_t tokens = 0;
  std::int64_t token_bytes = 2;  ///< 1, 2, 4 or 8.
};

/// Token file, and what is known about it from elsewhere.
struct TokenFile {
  const std::filesystem::path& path;
  std::span<const std::byte> bytes;
  /// 2 or 4, from meta.json; nullopt: not given.
  std::optional<std::int64_t> said_bytes;
  /// Written by `data prepare`: plain ids of that width.
  bool is_ours = false;
  std::int64_t vocab_size = 0;  ///< 0: unknown.
};

/// Detects self-describing files: NumPy's (.npy), those with the header of llm.c and
/// modded-nanogpt, Megatron's .bin beside an .idx. Any other file is plain ids, uint16 unless
/// meta.json says uint32, unless its bytes contradict that. Errors (user): what the bytes are
/// instead, and what to do; a header or index inconsistent with the file.
[[nodiscard]] Result<TokenEncoding> token_encoding_of(const TokenFile& file);

}  // namespace train::data
