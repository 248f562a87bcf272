#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

struct TokenizerParts;

struct EncodeOptions {
  bool add_special_tokens = false;  ///< Add the tokens that the files put around a text.
  /// The text is a chat template's output: control tokens written in it become tokens, as in the
  /// reference. Matters only for SentencePiece models and tekken.json, whose control tokens other
  /// text never produces. For SentencePiece the text between them is encoded piece by piece, with a
  /// space put before the first only (before each if a tokenizer_config.json beside it says
  /// "legacy": true).
  bool rendered = false;
};

/// Ids of a text, and the span that each stands for. A byte token of a character stands for the
/// whole character; the normal form of several characters stands for all of them; text that a
/// normalizer or splitter prepends stands for the first character, in addition to that one's own
/// token. Tokens around a text have the empty span {0, 0}. So neighbours may share bytes, and bytes
/// removed by a normalizer or splitter belong to no token.
struct EncodedText {
  std::vector<std::uint32_t> ids;
  std::vector<storage::TokenSpan> spans;  ///< One per id, in bytes of the input text.
};

/// Tokenizer of an open model: text to token ids and back.
///
/// Threading: immutable; copies share their data, and threads may share one. For more than a few
/// texts use a TextEncoder per thread. Invariants: TK-1 the ids equal the reference's. TK-2 they
/// depend only on text and tokenizer. TK-3 a text of n bytes takes O(n log n) steps, for any text.
/// TK-4 decoding may continue, also token by token: text of the tokens so far + text of the next
/// ones = the reference's text of all of them.
class Tokenizer {
 public:
  /// `path`: a tokenizer.json, a SentencePiece model, a tekken.json, a rank file (base64 and number
  /// in each line), or a directory with one of those or with vocab.json and merges.txt. Errors
  /// (user): missing, not readable as any of them, unsupported parts, by name.
  static Result<Tokenizer> load(const std::filesystem::path& path);

  /// Wraps parts that are already read. REQUIRES: not null.
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  /// Invalid UTF-8 is read as U+FFFD. Special tokens are those that the files put around a text.
  /// Errors (user): a regular expression of the files that takes too long on this text.
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          bool add_special_tokens) const;

  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          const EncodeOptions& options) const;

  /// encode() with spans. Errors (user): also a text of 4 GiB or more.
  [[nodiscard]] Result<EncodedText> encode_with_spans(std::string_view text,
                                                      const EncodeOptions& options) const;

  /// Ids without a token are skipped; so are special tokens, if `skip_special`.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  /// Largest id plus one.
  [[nodiscard]] std::uint32_t vocab_size() const;
  /// Token as written in the file; empty if the id does not exist.
  [[nodiscard]] std::string_view token_text(std::uint32_t id) const;
  [[nodiscard]] bool is_special(std::uint32_t id) const;
  /// True for a byte token like <0x0A>, decoded together with its neighbours.
  [[nodiscard]] bool is_byte(std::uint32_t id) const;

  /// Token that ends a document: from the files beside the tokenizer, otherwise by a usual name.
  [[nodiscard]] std::optional<std::uint32_t> end_of_text() const;

  /// Settings of the files that are ignored (truncation, padding); a sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  [[nodiscard]] const std::shared_ptr<const TokenizerParts>& parts() const { return parts_; }

 private:
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace train::data
