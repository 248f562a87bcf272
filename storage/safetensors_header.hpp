#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/safetensors.hpp"

namespace train::storage {

/// Largest header accepted, so that a hostile one costs neither time nor memory. The format itself
/// allows 100,000,000 bytes.
inline constexpr std::uint64_t kHeaderLimitBytes = std::uint64_t{32} << 20;

/// Bytes of the header length before the header.
inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kTensorCountLimit = 250'000;

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  ///< In the order of the text; offsets not checked yet.
  TensorMetadata metadata;
};

/// Parses the JSON header of a safetensors file, accepting only its grammar: one object of {dtype,
/// shape, data_offsets} objects and an optional __metadata__ of strings; no duplicate name, no
/// unknown key. Never recurses; memory is proportional to the text. Errors (failure): only the
/// reason, on one short line, without the file.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view text);

/// Bytes of a tensor; nullopt if the dtype is unknown, a dimension is negative, or the product
/// overflows 63 bits.
[[nodiscard]] std::optional<std::uint64_t> tensor_size_bytes(std::string_view dtype,
                                                             std::span<const std::int64_t> shape);

}  // namespace train::storage
