#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::data {

/// Place of a match in the searched text.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Regular expression of tokenizer.json: Oniguruma's Ruby syntax, its \s and \w, classes of Unicode
/// 16.0. Executed by PCRE2, for which it is rewritten where the two differ.
///
/// Threading: may be shared between searching threads.
class Regex {
 public:
  /// Errors (user): invalid, or a construct that PCRE2 treats differently.
  static Result<Regex> compile(std::string_view pattern);
  /// Matches exactly this text.
  static Result<Regex> literal(std::string_view text);

  /// Iterates over the matches of a text, leftmost first, without overlap. An empty match at the
  /// end of the previous one is skipped.
  class Matches {
   public:
    /// REQUIRES: `text` (valid UTF-8) and `regex` outlive this object.
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

    /// nullopt after the last match. Errors (user): more search steps than any sane pattern takes.
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
  std::shared_ptr<const Code> code_;  ///< Shared by copies; immutable.
};

}  // namespace train::data
