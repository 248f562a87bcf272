#define XXH_INLINE_ALL
#include "engine/rank/weights_digest.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "base/check.hpp"

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

/// Weights go by their parameter's name.
std::uint64_t view_digest(const StateView& view) {
  std::string_view name = view.name;
  name.remove_prefix(is_weight(name) ? kWeights.size() : 0);
  return view.rows == 0 ? 0
                        : rows_digest(name, view.first_row, view.rows, view.data,
                                      view.size_bytes / static_cast<std::size_t>(view.rows));
}

}  // namespace

std::uint64_t weights_digest(std::span<const StateView> state) {
  std::uint64_t digest = 0;
  for (const StateView& view : state) {
    digest += is_weight(view.name) ? view_digest(view) : 0;
  }
  return digest;
}

std::vector<std::string> tensor_names(std::span<const StateView> state) {
  std::vector<std::string> names;
  for (const StateView& view : state) {
    names.push_back(view.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<std::uint64_t> tensor_digests(std::span<const StateView> state,
                                          std::span<const std::string> names) {
  std::vector<std::uint64_t> digests(names.size());
  for (const StateView& view : state) {
    const auto name = std::lower_bound(names.begin(), names.end(), view.name);
    TRAIN_CHECK(name != names.end() && *name == view.name, "{} is not among the names", view.name);
    digests[static_cast<std::size_t>(name - names.begin())] += view_digest(view);
  }
  return digests;
}

std::uint64_t weights_digest(std::span<const std::uint64_t> digests,
                             std::span<const std::string> names) {
  TRAIN_CHECK(digests.size() == names.size(), "{} digests of {} tensors", digests.size(),
              names.size());
  std::uint64_t digest = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    digest += is_weight(names[i]) ? digests[i] : 0;
  }
  return digest;
}

}  // namespace train::engine
