#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/rows/row_split.hpp"
#include "data/tokenizer/tokenizer.hpp"

// Rows as readable text.
namespace train::data {

/// Document of a row.
struct RowExcerpt {
  RowDocument document = {};
  std::vector<std::uint32_t> tokens = {};
  std::vector<bool> trained = {};  ///< For each token: it is a trained target of the token before
                                   ///< it.
};

/// Documents of a row, in order. Errors: those of RowSplit::read(). REQUIRES: row < rows().
[[nodiscard]] Result<std::vector<RowExcerpt>> read_excerpts(const RowSplit& split,
                                                            std::uint64_t row);

/// First row that holds a document, by its index; nullopt: no row does. Scans all rows.
[[nodiscard]] std::optional<std::uint64_t> row_of_document(const RowSplit& split,
                                                           std::uint64_t document);

struct Marks {
  std::string begin;
  std::string end;
};
/// Text of a document, special tokens included, with marks around the trained parts. Control
/// characters except new lines and tabs are removed: a data set must not control the terminal.
[[nodiscard]] std::string marked_text(const Tokenizer& tokenizer, const RowExcerpt& excerpt,
                                      const Marks& marks);

}  // namespace train::data
