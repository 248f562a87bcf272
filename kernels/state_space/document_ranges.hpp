#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "kernels/state_space/documents.hpp"

// Documents of a call, as the CPU's kernels go through them.
namespace train::kernels::cpu {

/// Neighbouring rows of one sequence.
struct DocumentRange {
  std::int64_t sequence = 0;
  std::int64_t first = 0, length = 0;  ///< Row of the whole call; rows.

  [[nodiscard]] std::int64_t end() const { return first + length; }
};

/// Lists the documents of all sequences, in order; `single`: each row is one, wherever its text is.
inline std::vector<DocumentRange> document_ranges(const DocumentRows& rows, bool single = false) {
  std::vector<DocumentRange> ranges;
  for (std::int64_t sequence = 0; sequence < rows.sequences; ++sequence) {
    const std::int64_t first = sequence * rows.seq_len;
    for (std::int64_t row = first; row < first + rows.seq_len; ++row) {
      const std::int64_t position =
          rows.positions == nullptr ? row - first : std::int64_t{rows.positions[row]};
      if (single || position == 0) {
        ranges.push_back({.sequence = sequence, .first = row});
      } else {
        TRAIN_CHECK(row > first && position == row - ranges.back().first,
                    "state space: position {} of row {}", position, row);
      }
      ++ranges.back().length;
    }
  }
  return ranges;
}

/// The first document of each sequence, and the end.
inline std::vector<const DocumentRange*> sequence_begins(
    const std::vector<DocumentRange>& documents) {
  std::vector<const DocumentRange*> begins;
  for (const DocumentRange& document : documents) {
    if (std::cmp_greater_equal(document.sequence, begins.size())) {
      begins.push_back(&document);
    }
  }
  begins.push_back(documents.data() + documents.size());
  return begins;
}

}  // namespace train::kernels::cpu
