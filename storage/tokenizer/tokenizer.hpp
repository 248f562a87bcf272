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
#include "storage/tokenizer/text/origins.hpp"

namespace train::storage {

struct TokenizerParts;

struct EncodeOptions {
  bool add_special_tokens = false;  ///< Those that the files say to put around a text.
  /// The text is a chat template's: what is written as a control token is that token, as the
  /// reference has it. Only SentencePiece models and tekken.json differ, whose control tokens no
  /// other text gives. Of SentencePiece what stands between them is encoded piece by piece, with a
  /// space put before the first alone (before each if a tokenizer_config.json beside it says
  /// "legacy": true).
  bool rendered = false;
};

/// Ids of a text, and what each of them stands for in it. A token of one character's bytes, or of
/// some of them, stands for all of the character; what a normalizer makes of several characters
/// stands for all of those, and what it or a splitter puts before a text for the first character
/// besides that one's own token. Tokens put around a text stand for no bytes ({0, 0}). Neighbours
/// may so share bytes, and bytes that a normalizer or splitter drops belong to no token.
struct EncodedText {
  std::vector<std::uint32_t> ids;
  std::vector<TokenSpan> spans;  ///< One for each id, in bytes of the text given.
};

/// Text to token ids and back, as the tokenizer of an open model does it.
///
/// Threading: immutable; copies share what they hold, and threads may share one. For more than a
/// few texts each thread takes a TextEncoder. Invariants: TK-1 the ids are the reference's. TK-2
/// they depend on text and tokenizer alone. TK-3 a text of n bytes takes O(n log n) steps, whatever
/// it is. TK-4 the text of tokens behind others is the reference's text of all of them behind that
/// of the others, a token at a time too.
class Tokenizer {
 public:
  /// `path`: a tokenizer.json, a SentencePiece model, a tekken.json, a file of ranks (base64 and
  /// number in each line), or a directory that has one of those or vocab.json and merges.txt.
  /// Errors (user): missing, not readable as any of them, parts that are not supported, by name.
  static Result<Tokenizer> load(const std::filesystem::path& path);

  /// Of parts that were read already. REQUIRES: not null.
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  /// What is not UTF-8 is read as U+FFFD. Special tokens are those that the file says to put around
  /// a text. Errors (user): an expression of the file that takes too long on this text.
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          bool add_special_tokens) const;

  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          const EncodeOptions& options) const;

  /// The same with spans. Errors (user): also a text of 4 GiB or more.
  [[nodiscard]] Result<EncodedText> encode_with_spans(std::string_view text,
                                                      const EncodeOptions& options) const;

  /// Ids without a token are left out; so are special tokens, if `skip_special`.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  /// One more than the largest id.
  [[nodiscard]] std::uint32_t vocab_size() const;
  /// As the file writes it; empty if there is no such id.
  [[nodiscard]] std::string_view token_text(std::uint32_t id) const;
  [[nodiscard]] bool is_special(std::uint32_t id) const;
  /// Whether it stands for a byte that is decoded together with those beside it, as <0x0A> does.
  [[nodiscard]] bool is_byte(std::uint32_t id) const;

  /// The token that ends a document: as the files beside the tokenizer say, else by a usual name.
  [[nodiscard]] std::optional<std::uint32_t> end_of_text() const;

  /// What the file asks for that is left out (truncation, padding); a sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  [[nodiscard]] const std::shared_ptr<const TokenizerParts>& parts() const { return parts_; }

 private:
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace train::storage
