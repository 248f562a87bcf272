#define XXH_INLINE_ALL
#include "engine/weights_digest.hpp"

#include <xxhash.h>

#include <cstddef>
#include <string_view>

namespace train::engine {
namespace {

std::uint64_t rows_digest(std::string_view name, std::int64_t first_row, std::int64_t rows,
                          const std::byte* row, std::size_t row_bytes) {
  const std::uint64_t name_hash = XXH3_64bits(name.data(), name.size());
  std::uint64_t digest = 0;
  for (std::int64_t r = 0; r < rows; ++r, row += row_bytes) {
    const std::uint64_t seed = XXH3_64bits_withSeed(&name_hash, sizeof(name_hash),
                                                    static_cast<std::uint64_t>(first_row + r));
    digest += XXH3_64bits_withSeed(row, row_bytes, seed);
  }
  return digest;
}

}  // namespace

std::uint64_t weights_digest(std::span<const StateView> state) {
  constexpr std::string_view kModel = "model.";
  std::uint64_t digest = 0;
  for (const StateView& view : state) {
    if (view.rows > 0 && view.name.starts_with(kModel)) {
      digest +=
          rows_digest(std::string_view(view.name).substr(kModel.size()), view.first_row, view.rows,
                      view.data, view.size_bytes / static_cast<std::size_t>(view.rows));
    }
  }
  return digest;
}

}  // namespace train::engine
