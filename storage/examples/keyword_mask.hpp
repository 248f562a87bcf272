#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/text/origins.hpp"
#include "storage/tokenizer/text/regex.hpp"

namespace train::storage {

/// Which tokens of a text a list of expressions is about: those of which any byte belongs to a
/// match. Upper and lower case are the same.
///
/// Threading: immutable.
class KeywordMask {
 public:
  /// Errors (user): no expressions, an empty one, one that Regex::compile() refuses; names it.
  [[nodiscard]] static Result<KeywordMask> compile(std::span<const std::string> expressions);

  /// Of a file with an expression on each line; empty lines and those that begin with '#' are none.
  /// Errors (user): the file cannot be read; those of compile(), naming it.
  [[nodiscard]] static Result<KeywordMask> read(const std::filesystem::path& file);

  /// `spans`: of the tokens, as Tokenizer::encode_with_spans() has them; those put around the text
  /// are about nothing. Errors (user): a search that takes too many steps. REQUIRES: valid UTF-8.
  [[nodiscard]] Result<std::vector<bool>> of(std::string_view text,
                                             std::span<const TokenSpan> spans) const;

 private:
  explicit KeywordMask(std::vector<Regex> expressions) : expressions_(std::move(expressions)) {}

  std::vector<Regex> expressions_;
};

}  // namespace train::storage
