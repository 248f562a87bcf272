#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// Where a match lies in the text that was searched.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// A regular expression as tokenizer.json has them: Oniguruma's Ruby syntax, its \s and \w, classes
/// of Unicode 16.0. Searched by PCRE2, for which it is rewritten where the two differ.
///
/// Threading: may be shared between threads that search.
class Regex {
 public:
  /// Errors (user): no regular expression, or one with a construct that PCRE2 reads otherwise.
  static Result<Regex> compile(std::string_view pattern);
  /// One that matches this text and nothing else.
  static Result<Regex> literal(std::string_view text);

  /// Goes through the matches of a text, leftmost first, none within another. An empty match at the
  /// end of the one before it is no match.
  class Matches {
   public:
    /// REQUIRES: `text`, valid UTF-8, and `regex` outlive this.
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

    /// Nothing after the last. Errors (user): the search takes more steps than any sane pattern.
    [[nodiscard]] Result<std::optional<Match>> next();

   private:
    struct State;
    const Regex& regex_;
    std::string_view text_;
    std::unique_ptr<State> state_;
    std::size_t from_ = 0;
    std::optional<std::size_t> last_end_;
  };

  [[nodiscard]] const std::string& pattern() const { return pattern_; }

 private:
  struct Code;
  Regex(std::string pattern, std::shared_ptr<const Code> code)
      : pattern_(std::move(pattern)), code_(std::move(code)) {}

  static Result<Regex> compile_rewritten(std::string pattern, const std::string& rewritten);

  std::string pattern_;
  std::shared_ptr<const Code> code_;  ///< Shared by copies; never changes.
};

}  // namespace train::storage
