#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace train::storage {

/// Dequantizes one block into its number of values.
using DequantizeBlock = void (*)(const std::byte* block, float* values);

/// Element type of GGUF files: elements are stored in blocks of a fixed number of bytes.
struct GgufType {
  std::uint32_t code = 0;  ///< Code in the file.
  std::string_view name = {};
  std::uint32_t block_elements = 1;
  std::uint32_t block_bytes = 0;
  DequantizeBlock dequantize = nullptr;  ///< nullptr: its tensors are listed, but cannot be read.
};

/// Most elements in a block of any type.
inline constexpr std::size_t kGgufBlockLimit = 256;

/// nullptr if no type has that code.
[[nodiscard]] const GgufType* find_gguf_type(std::uint32_t code);

/// Readable types, for error messages: "F32, F16, ...".
[[nodiscard]] std::string readable_gguf_types();

/// Dequantizes whole blocks, in fp32 arithmetic, as Python's `gguf` package does. REQUIRES: a
/// readable type; `values` covers whole blocks, and the bytes are theirs.
void dequantize_blocks(const GgufType& type, std::span<const std::byte> bytes,
                       std::span<float> values);

}  // namespace train::storage
