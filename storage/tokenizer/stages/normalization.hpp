#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/formats/sentencepiece_rules.hpp"
#include "storage/tokenizer/text/character_map.hpp"
#include "storage/tokenizer/text/origins.hpp"
#include "storage/tokenizer/text/regex.hpp"

namespace train::storage {

/// The normal forms of Unicode 9.0: characters assigned later stay as and where they are.
enum class UnicodeForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

struct ReplaceStep {
  Regex pattern;
  std::string literal;  ///< What the pattern matches, if it is no more than that.
  std::string content;
};
struct PrependStep {
  std::string text;  ///< Of a text that is not empty.
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

/// What happens to text before it is split: steps, one after the other. None: nothing.
///
/// Threading: immutable.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizationStep> steps) : steps_(std::move(steps)) {}

  struct Output {
    std::string_view text;
    bool at_start = true;  ///< The text begins with what the input begins with.
  };

  /// The text normalised: `text` itself or what `buffer` holds then. `origins`, unless null, are
  /// those of `text` and become those of the output. REQUIRES: valid UTF-8.
  /// Errors (user): an expression that takes too long.
  [[nodiscard]] Result<Output> apply(std::string_view text, std::string& buffer,
                                     Origins* origins = nullptr) const;

  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  std::vector<NormalizationStep> steps_;
};

/// `text` in a normal form, or nothing where it is in that form already. REQUIRES: valid UTF-8.
[[nodiscard]] bool to_unicode_form(UnicodeForm form, std::string_view text, std::string& out,
                                   OriginTrace& trace);

}  // namespace train::storage
