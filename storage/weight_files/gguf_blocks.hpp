#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace train::storage {

/// Turns one block into as many values as the type has in a block.
using DequantizeBlock = void (*)(const std::byte* block, float* values);

/// An element type of GGUF files: elements are kept in blocks of a fixed number of bytes.
struct GgufType {
  std::uint32_t code = 0;  ///< In the file.
  std::string_view name = {};
  std::uint32_t block_elements = 1;
  std::uint32_t block_bytes = 0;
  DequantizeBlock dequantize = nullptr;  ///< nullptr: its tensors are listed, but not read.
};

/// The most elements that a block of any type has.
inline constexpr std::size_t gguf_block_limit = 256;

/// nullptr if no type has that code.
[[nodiscard]] const GgufType* find_gguf_type(std::uint32_t code);

/// Those that are read, for error messages: "F32, F16, ...".
[[nodiscard]] std::string readable_gguf_types();

/// The values of whole blocks, in fp32 arithmetic, as the `gguf` package of Python computes them.
/// REQUIRES: the type can be read; as many bytes as the blocks of `values` have, which are whole.
void dequantize_blocks(const GgufType& type, std::span<const std::byte> bytes,
                       std::span<float> values);

}  // namespace train::storage
