#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// How documents become rows of fixed length.
enum class Packing : std::uint8_t {
  bfd,        ///< Best fit decreasing; documents are whole.
  bfd_split,  ///< The same, after long documents are cut into rows.
  wrapped,    ///< One after the other; documents go on in the next row.
  greedy,     ///< One after the other; the next row begins where one does not fit.
  none,       ///< One to a row.
};

/// Errors (user): lists the names.
[[nodiscard]] Result<Packing> packing_of(std::string_view name);
[[nodiscard]] std::string_view packing_name(Packing packing);
/// Whether a document may be cut into several rows, so that none need be truncated.
[[nodiscard]] bool cuts_documents(Packing packing);

/// What is packed: one document, or a pair, which stays together.
struct PackItem {
  std::uint64_t group = 0;   ///< Number of the document or pair.
  std::uint32_t start = 0;   ///< Of a document that is cut: its first token here.
  std::uint32_t length = 0;  ///< Tokens; at least 1.

  bool operator==(const PackItem&) const = default;
};
using PackedRow = std::vector<PackItem>;

/// Packs the documents of one window, in the order given. A pure function. `lengths[i]` tokens has
/// the group `groups[i]`. REQUIRES: at least 1 each, and at most `row_length` unless the packing
/// cuts documents.
[[nodiscard]] std::vector<PackedRow> pack_window(Packing packing,
                                                 std::span<const std::uint64_t> groups,
                                                 std::span<const std::uint32_t> lengths,
                                                 std::uint32_t row_length);

/// Documents are packed so many at a time, so that a row's documents are drawn from a whole window,
/// and memory does not grow with the data.
inline constexpr std::uint64_t pack_window_groups = std::uint64_t{1} << 16;

}  // namespace train::storage
