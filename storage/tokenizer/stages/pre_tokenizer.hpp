#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/text/known_patterns.hpp"
#include "storage/tokenizer/text/origins.hpp"
#include "storage/tokenizer/text/regex.hpp"

namespace train::storage {

/// What becomes of the matches of a pattern that splits: pieces of their own, nothing, part of the
/// piece before or after them, one piece of neighbours.
enum class MatchBehavior : std::uint8_t {
  isolated,
  removed,
  merged_with_previous,
  merged_with_next,
  contiguous,
};

struct SplitStage {
  std::variant<KnownSplitter, Regex, std::string> pattern;  ///< A string: that text.
  MatchBehavior behavior = MatchBehavior::isolated;
  bool invert = false;  ///< What lies between matches takes their place.
};
/// The words are bytes afterwards: no stage may follow.
struct ByteLevelStage {
  bool add_prefix_space = true;
  std::optional<KnownSplitter> splitter;  ///< gpt2, or nothing to split.
};
enum class PrependScheme : std::uint8_t { always, first, never };
struct MetaspaceStage {
  std::string replacement;  ///< Of a space.
  PrependScheme prepend = PrependScheme::always;
  bool split = true;
};
/// Characters of a kind as matches.
struct ClassStage {
  enum class Kind : std::uint8_t { digit, punctuation, space };
  Kind kind = Kind::digit;
  MatchBehavior behavior = MatchBehavior::isolated;
};
/// Runs of word characters, and runs of others that are no spaces.
struct WordRunStage {};

using PreTokenizerStage =
    std::variant<SplitStage, ByteLevelStage, MetaspaceStage, ClassStage, WordRunStage>;

/// Receives words in their order.
class WordSink {
 public:
  WordSink() = default;
  WordSink(const WordSink&) = delete;
  WordSink& operator=(const WordSink&) = delete;
  virtual ~WordSink() = default;
  /// Never empty; valid during the call, as are the origins of its bytes (null if split() had
  /// none).
  virtual void word(std::string_view text, const TokenSpan* origins) = 0;
};

/// Cuts text into words, within which pairs merge: each stage cuts the pieces of the one before.
///
/// Threading: immutable.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStage> stages);

  /// `at_start`: the text begins what was given to the tokenizer. `origins`: of its bytes, or null.
  /// REQUIRES: valid UTF-8. Errors (user): an expression that takes too long.
  [[nodiscard]] Status split(std::string_view text, const TokenSpan* origins, bool at_start,
                             WordSink& sink) const;

  [[nodiscard]] bool byte_level() const { return byte_level_; }
  /// Whether a text gets a space before it; nothing if no stage could put one there.
  [[nodiscard]] std::optional<bool> prefix_space() const;

 private:
  std::vector<PreTokenizerStage> stages_;
  std::optional<KnownSplitter> only_;  ///< If it is all that the stages do.
  bool byte_level_ = false;
};

}  // namespace train::storage
