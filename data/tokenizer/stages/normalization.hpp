#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/stages/sentencepiece_rules.hpp"
#include "data/tokenizer/text/character_map.hpp"
#include "data/tokenizer/text/regex.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

/// Normal forms of Unicode 9.0: characters assigned later are left unchanged.
enum class UnicodeForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

struct ReplaceStep {
  Regex pattern;
  std::string literal;  ///< Set if the pattern is a literal.
  std::string content;
};
struct PrependStep {
  std::string text;  ///< Prepended to a non-empty text.
};
struct StripStep {
  bool left = true;
  bool right = true;
};
struct LowercaseStep {};
struct SentencePieceStep {
  std::shared_ptr<const SentencePieceRules> rules;  ///< Not null.
};

/// See map_clusters().
struct CharacterMapStep {
  std::shared_ptr<const CharacterMap> map;  ///< Not null.
};

using NormalizationStep = std::variant<UnicodeForm, ReplaceStep, PrependStep, StripStep,
                                       LowercaseStep, SentencePieceStep, CharacterMapStep>;

/// Normalisation of text before splitting: a sequence of steps, possibly empty.
///
/// Threading: immutable.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizationStep> steps) : steps_(std::move(steps)) {}

  struct Output {
    std::string_view text;
    bool at_start = true;  ///< The text begins at the input's beginning.
  };

  /// Normalises: returns `text` itself or the content of `buffer`. `origins`, unless null, are
  /// those of `text` and become those of the output. REQUIRES: valid UTF-8. Errors (user): a
  /// regular expression that takes too long.
  [[nodiscard]] Result<Output> apply(std::string_view text, std::string& buffer,
                                     storage::Origins* origins = nullptr) const;

  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  std::vector<NormalizationStep> steps_;
};

/// Normal form of `text`; returns false if it already is in that form. REQUIRES: valid UTF-8.
[[nodiscard]] bool to_unicode_form(UnicodeForm form, std::string_view text, std::string& out,
                                   storage::OriginTrace& trace);

}  // namespace train::data
