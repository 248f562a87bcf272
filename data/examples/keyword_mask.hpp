#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/text/regex.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

/// Selects the tokens of a text that match a list of regular expressions: those with any byte
/// inside a match. Case-insensitive.
///
/// Threading: immutable.
class KeywordMask {
 public:
  /// Errors (user): no expressions, an empty one, or one that Regex::compile() rejects; names it.
  [[nodiscard]] static Result<KeywordMask> compile(std::span<const std::string> expressions);

  /// Reads a file with one expression per line; empty lines and lines that begin with '#' are
  /// skipped. Errors (user): an unreadable file; those of compile(), with the file's name.
  [[nodiscard]] static Result<KeywordMask> read(const std::filesystem::path& file);

  /// `spans`: of the tokens, as from Tokenizer::encode_with_spans(); tokens put around the text
  /// never match. Errors (user): a search with too many steps. REQUIRES: valid UTF-8.
  [[nodiscard]] Result<std::vector<bool>> of(std::string_view text,
                                             std::span<const storage::TokenSpan> spans) const;

 private:
  explicit KeywordMask(std::vector<Regex> expressions) : expressions_(std::move(expressions)) {}

  std::vector<Regex> expressions_;
};

}  // namespace train::data
