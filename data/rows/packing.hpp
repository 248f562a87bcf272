#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// Packing of documents into rows of fixed length.
enum class Packing : std::uint8_t {
  bfd,        ///< Best fit decreasing; documents stay whole.
  bfd_split,  ///< bfd, after cutting long documents to row length.
  wrapped,    ///< Concatenated; documents continue in the next row.
  greedy,     ///< Concatenated; a document that does not fit begins the next row.
  none,       ///< One document per row.
};

/// Errors (user): lists the names.
[[nodiscard]] Result<Packing> packing_of(std::string_view name);
[[nodiscard]] std::string_view packing_name(Packing packing);
/// True if a document may be cut into several rows, so that none is truncated.
[[nodiscard]] bool cuts_documents(Packing packing);

/// Item to pack: one document, or a pair, which stays together.
struct PackItem {
  std::uint64_t group = 0;   ///< Index of the document or pair.
  std::uint32_t start = 0;   ///< First token of this part of a cut document.
  std::uint32_t length = 0;  ///< Tokens; at least 1.

  bool operator==(const PackItem&) const = default;
};
using PackedRow = std::vector<PackItem>;

/// Packs the documents of one window, in the order given. Pure. Group `groups[i]` has `lengths[i]`
/// tokens. REQUIRES: lengths of at least 1, and at most `row_length` unless the packing cuts
/// documents.
[[nodiscard]] std::vector<PackedRow> pack_window(Packing packing,
                                                 std::span<const std::uint64_t> groups,
                                                 std::span<const std::uint32_t> lengths,
                                                 std::uint32_t row_length);

/// Documents packed at a time: a row's documents come from a whole window, and memory does not grow
/// with the data.
inline constexpr std::uint64_t kPackWindowGroups = std::uint64_t{1} << 16;

}  // namespace train::data
