#include "data/rows/row_text.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace train::data {
namespace {

std::string printable(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, which terminals interpret too.
    const bool second =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (second) {
      ++i;
    } else if ((byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t') {
      result.push_back(text[i]);
    }
  }
  return result;
}

}  // namespace

Result<std::vector<RowExcerpt>> read_excerpts(const RowSplit& split, std::uint64_t row) {
  const auto length = static_cast<std::size_t>(split.row_length());
  std::vector<std::int32_t> tokens(length);
  std::vector<std::int32_t> targets(length);
  std::vector<std::int32_t> positions(length);
  TRAIN_RETURN_IF_ERROR(
      split.read(row, {.tokens = tokens, .targets = targets, .positions = positions}));
  std::vector<RowExcerpt> excerpts;
  for (const RowDocument& document : split.documents(row)) {
    RowExcerpt excerpt{.document = document};
    for (std::int32_t i = 0; i < document.length; ++i) {
      const auto at = static_cast<std::size_t>(document.first) + static_cast<std::size_t>(i);
      excerpt.tokens.push_back(static_cast<std::uint32_t>(tokens[at]));
      excerpt.trained.push_back(i > 0 && targets[at - 1] >= 0);
    }
    excerpts.push_back(std::move(excerpt));
  }
  return excerpts;
}

std::optional<std::uint64_t> row_of_document(const RowSplit& split, std::uint64_t document) {
  for (std::uint64_t row = 0; row < split.rows(); ++row) {
    const auto numbers = split.document_numbers(row);
    if (std::find(numbers.begin(), numbers.end(), document) != numbers.end()) {
      return row;
    }
  }
  return std::nullopt;
}

std::string marked_text(const Tokenizer& tokenizer, const RowExcerpt& excerpt, const Marks& marks) {
  std::string text;
  const std::span<const std::uint32_t> tokens(excerpt.tokens);
  for (std::size_t begin = 0; begin < tokens.size();) {
    std::size_t end = begin + 1;
    while (end < tokens.size() && excerpt.trained[end] == excerpt.trained[begin]) {
      ++end;
    }
    const std::string piece =
        printable(tokenizer.decode(tokens.subspan(begin, end - begin), /*skip_special=*/false));
    text += excerpt.trained[begin] ? marks.begin + piece + marks.end : piece;
    begin = end;
  }
  return text;
}

}  // namespace train::data
