#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "base/result.hpp"

namespace train::storage {

/// Where the ids of a token file lie, little-endian.
struct TokenEncoding {
  std::uint64_t first_byte = 0;
  std::uint64_t tokens = 0;
  std::int64_t token_bytes = 2;  ///< 1, 2, 4 or 8.
};

/// A token file, and what is known of it besides.
struct TokenFile {
  const std::filesystem::path& path;
  std::span<const std::byte> bytes;
  /// 2 or 4, as meta.json says; none: it does not.
  std::optional<std::int64_t> said_bytes;
  /// `data prepare` wrote it: ids alone, of that width.
  bool is_ours = false;
  std::int64_t vocab_size = 0;  ///< 0: not known.
};

/// Files that say themselves how they are written are read so: NumPy's (.npy), those with the
/// header of llm.c and modded-nanogpt, Megatron's .bin beside an .idx. Any other is ids alone,
/// uint16 unless meta.json says uint32, as long as its bytes do not show that they are not. Errors
/// (user): what the bytes are instead, and what to do; a header or index at odds with the file.
[[nodiscard]] Result<TokenEncoding> token_encoding_of(const TokenFile& file);

}  // namespace train::storage
