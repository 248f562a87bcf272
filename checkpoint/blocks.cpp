#include "checkpoint/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "storage/files/digest.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/safetensors_header.hpp"

namespace train::checkpoint {
namespace {

constexpr std::size_t digits = 16;

std::uint64_t blocks_of(std::uint64_t bytes, std::uint64_t block_bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
}

}  // namespace

std::uint64_t block_size(std::uint64_t tensor_bytes) {
  constexpr std::uint64_t smallest = 4096;
  constexpr std::uint64_t step = 512;
  const std::uint64_t share = blocks_of(tensor_bytes, 256);
  return std::clamp(blocks_of(share, step) * step, smallest, block_limit_bytes);
}

std::string block_digests(std::span<const std::byte> rows, std::uint64_t block_bytes) {
  std::string digests;
  digests.reserve(static_cast<std::size_t>(blocks_of(rows.size(), block_bytes)) * digits);
  while (!rows.empty()) {
    const auto block = rows.first(std::min<std::uint64_t>(block_bytes, rows.size()));
    fmt::format_to(std::back_inserter(digests), "{:016x}", storage::short_digest(block));
    rows = rows.subspan(block.size());
  }
  return digests;
}

bool blocks_match(const TensorRecord& record, std::uint64_t first,
                  std::span<const std::byte> bytes) {
  const std::string found = block_digests(bytes, record.block_bytes);
  return std::string_view(record.blocks)
             .substr(static_cast<std::size_t>(first) * digits, found.size()) == found;
}

std::vector<std::int64_t> rows_shape(const TensorRecord& record) {
  std::vector<std::int64_t> shape = record.shape;
  if (!shape.empty()) {
    shape.front() = record.rows;
  }
  return shape;
}

std::optional<std::uint64_t> rows_bytes(const TensorRecord& record) {
  return storage::tensor_size_bytes(record.dtype, rows_shape(record));
}

std::string blocks_defect(const TensorRecord& record) {
  const auto bytes = rows_bytes(record);
  if (!bytes) {
    return fmt::format("tensor {}: dtype {} unknown, or its shape too large",
                       storage::shown(record.name), storage::shown(record.dtype));
  }
  if (record.block_bytes > block_limit_bytes) {
    return fmt::format("tensor {}: blocks of {} bytes, more than {}", storage::shown(record.name),
                       record.block_bytes, block_limit_bytes);
  }
  if (record.block_bytes > 0 &&
      (record.blocks.size() % digits != 0 ||
       record.blocks.size() / digits != blocks_of(*bytes, record.block_bytes))) {
    return fmt::format("tensor {}: {} digits for {} blocks of {} bytes",
                       storage::shown(record.name), record.blocks.size(),
                       blocks_of(*bytes, record.block_bytes), record.block_bytes);
  }
  return {};
}

}  // namespace train::checkpoint
