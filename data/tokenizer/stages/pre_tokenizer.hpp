#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/text/known_patterns.hpp"
#include "data/tokenizer/text/regex.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

/// Handling of a splitting pattern's matches: own pieces, removed, part of the piece before or
/// after, or merged when adjacent.
enum class MatchBehavior : std::uint8_t {
  isolated,
  removed,
  merged_with_previous,
  merged_with_next,
  contiguous,
};

struct SplitStage {
  std::variant<KnownSplitter, Regex, std::string> pattern;  ///< A string matches literally.
  MatchBehavior behavior = MatchBehavior::isolated;
  bool invert = false;  ///< Swaps matches and the text between them.
};
/// Turns words into bytes: no stage may follow.
struct ByteLevelStage {
  bool add_prefix_space = true;
  std::optional<KnownSplitter> splitter;  ///< gpt2, or no splitting.
};
enum class PrependScheme : std::uint8_t { always, first, never };
struct MetaspaceStage {
  std::string replacement;  ///< Replacement of a space.
  PrependScheme prepend = PrependScheme::always;
  bool split = true;
};
/// Matches characters of a class.
struct ClassStage {
  enum class Kind : std::uint8_t { digit, punctuation, space };
  Kind kind = Kind::digit;
  MatchBehavior behavior = MatchBehavior::isolated;
};
/// Runs of word characters, and runs of other non-space characters.
struct WordRunStage {};

using PreTokenizerStage =
    std::variant<SplitStage, ByteLevelStage, MetaspaceStage, ClassStage, WordRunStage>;

/// Receives words in order.
class WordSink {
 public:
  WordSink() = default;
  WordSink(const WordSink&) = delete;
  WordSink& operator=(const WordSink&) = delete;
  virtual ~WordSink() = default;
  /// Never empty; valid during the call, as are the origins of its bytes (null if split() had
  /// none).
  virtual void word(std::string_view text, const storage::TokenSpan* origins) = 0;
};

/// Splits text into words, within which pairs merge: each stage splits the pieces of the previous
/// one.
///
/// Threading: immutable.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStage> stages);

  /// `at_start`: the text begins the tokenizer's input. `origins`: of its bytes, or null. REQUIRES:
  /// valid UTF-8. Errors (user): a regular expression that takes too long.
  [[nodiscard]] Status split(std::string_view text, const storage::TokenSpan* origins,
                             bool at_start, WordSink& sink) const;

  [[nodiscard]] bool byte_level() const { return byte_level_; }
  /// True if a text gets a leading space; nullopt if no stage could add one.
  [[nodiscard]] std::optional<bool> prefix_space() const;

 private:
  std::vector<PreTokenizerStage> stages_;
  std::optional<KnownSplitter> only_;  ///< Set if the stages do nothing else.
  bool byte_level_ = false;
};

}  // namespace train::data
