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

namespace train::storage {

struct TokenizerParts;

/// Text to token ids and back, as the tokenizer of an open model does it.
///
/// Threading: immutable; copies share what they hold, and threads may share one. For more than a
/// few texts each thread takes a TextEncoder. Invariants: TK-1 the ids are the reference's. TK-2
/// they depend on text and tokenizer alone. TK-3 a text of n bytes takes O(n log n) steps, whatever
/// it is.
class Tokenizer {
 public:
  /// `path`: a tokenizer.json, a SentencePiece model, a file of ranks (base64 and number in each
  /// line), or a directory that has one of those or vocab.json and merges.txt. Errors (user):
  /// missing, not readable as any of them, parts that are not supported, by name.
  static Result<Tokenizer> load(const std::filesystem::path& path);

  /// Of parts that were read already. REQUIRES: not null.
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  /// What is not UTF-8 is read as U+FFFD. Special tokens are those that the file says to put around
  /// a text. Errors (user): an expression of the file that takes too long on this text.
  [[nodiscard]] Result<std::vector<std::uint32_t>> encode(std::string_view text,
                                                          bool add_special_tokens) const;

  /// Ids without a token are left out; so are special tokens, if `skip_special`.
  [[nodiscard]] std::string decode(std::span<const std::uint32_t> ids, bool skip_special) const;

  /// One more than the largest id.
  [[nodiscard]] std::uint32_t vocab_size() const;
  [[nodiscard]] std::optional<std::uint32_t> id_of(std::string_view token) const;
  /// As the file writes it; empty if there is no such id.
  [[nodiscard]] std::string_view token_text(std::uint32_t id) const;
  [[nodiscard]] bool is_special(std::uint32_t id) const;

  /// The token that ends a document: as the files beside the tokenizer say, else by a usual name.
  [[nodiscard]] std::optional<std::uint32_t> end_of_text() const;

  /// What the file asks for that is left out (truncation, padding); a sentence each.
  [[nodiscard]] const std::vector<std::string>& notes() const;

  [[nodiscard]] const std::shared_ptr<const TokenizerParts>& parts() const { return parts_; }

 private:
  std::shared_ptr<const TokenizerParts> parts_;
};

}  // namespace train::storage
