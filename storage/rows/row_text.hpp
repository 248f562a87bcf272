#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/rows/row_split.hpp"
#include "storage/tokenizer/tokenizer.hpp"

// Rows as people read them.
namespace train::storage {

/// A document as it lies in a row.
struct RowExcerpt {
  RowDocument document = {};
  std::vector<std::uint32_t> tokens = {};
  std::vector<bool> trained = {};  ///< Of each token, as the target of the one before it.
};

/// The documents of a row, in order. Errors: those of RowSplit::read(). REQUIRES: row < rows().
[[nodiscard]] Result<std::vector<RowExcerpt>> read_excerpts(const RowSplit& split,
                                                            std::uint64_t row);

/// The first row that has a document, by its number; none: no row has. Looks at every row.
[[nodiscard]] std::optional<std::uint64_t> row_of_document(const RowSplit& split,
                                                           std::uint64_t document);

struct Marks {
  std::string begin;
  std::string end;
};
/// The text of a document, special tokens included, with marks around what is trained. Control
/// characters but new lines and tabs are left out: a data set may not command a terminal.
[[nodiscard]] std::string marked_text(const Tokenizer& tokenizer, const RowExcerpt& excerpt,
                                      const Marks& marks);

}  // namespace train::storage
