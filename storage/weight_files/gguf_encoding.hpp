#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "storage/weight_files/gguf_blocks.hpp"

namespace train::storage {

/// Type that encode_blocks() writes: F32, F16, BF16, Q8_0, Q4_K, Q5_K, Q6_K; nullptr for others.
[[nodiscard]] const GgufType* find_writable_gguf_type(std::string_view name);

/// Encodes whole blocks. F32, F16, BF16: each element rounded to nearest, ties to even. Q8_0: bit
/// for bit as Python's `gguf` package does. Q4_K, Q5_K, Q6_K: scales that minimise the squared
/// error, by search; a block's bytes depend on its values alone. Returns false if a value is not
/// finite or too large for the type. REQUIRES: a writable type; `values` covers whole blocks, and
/// `bytes` is their size.
[[nodiscard]] bool encode_blocks(const GgufType& type, std::span<const float> values,
                                 std::span<std::byte> bytes);

}  // namespace train::storage
