#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/manifest.hpp"

namespace train::checkpoint {

inline constexpr std::uint64_t block_limit_bytes = std::uint64_t{1} << 20;

/// How long the blocks of a tensor are: a 256th of the tensor, but 4 KiB at least and 1 MiB at
/// most. So whoever reads an eighth of its rows reads at most a sixteenth more, and the manifest
/// does not grow with the number of ranks.
[[nodiscard]] std::uint64_t block_size(std::uint64_t tensor_bytes);

/// The short digests of the blocks of `rows`, 16 hexadecimal digits each; the last may be shorter.
[[nodiscard]] std::string block_digests(std::span<const std::byte> rows, std::uint64_t block_bytes);

/// Whether `bytes`, which begin at the block `first` of a record, have its blocks' digests.
/// REQUIRES: a record with blocks; `bytes` end where a block ends.
[[nodiscard]] bool blocks_match(const TensorRecord& record, std::uint64_t first,
                                std::span<const std::byte> bytes);

/// The shape of a record's rows: the tensor's, with as many rows as the record has.
[[nodiscard]] std::vector<std::int64_t> rows_shape(const TensorRecord& record);

/// Bytes of a record's rows; empty if dtype or shape do not allow to tell.
[[nodiscard]] std::optional<std::uint64_t> rows_bytes(const TensorRecord& record);

/// Empty if the record's rows have a size, and its blocks, if it has any, are so many.
[[nodiscard]] std::string blocks_defect(const TensorRecord& record);

}  // namespace train::checkpoint
