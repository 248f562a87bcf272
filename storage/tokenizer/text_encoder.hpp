#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/models/word_cache.hpp"
#include "storage/tokenizer/models/word_model.hpp"
#include "storage/tokenizer/stages/added_tokens.hpp"
#include "storage/tokenizer/stages/pre_tokenizer.hpp"
#include "storage/tokenizer/tokenizer.hpp"
#include "storage/tokenizer/tokenizer_parts.hpp"

namespace train::storage {

/// Encodes text after text, remembering words: the fast way.
///
/// Threading: one for each thread. Shares what the tokenizer holds; owns its cache and buffers.
/// Invariant: TK-2 what it remembers never changes the ids.
class TextEncoder : private WordSink {
 public:
  enum class Memory : std::uint8_t { words, none };

  explicit TextEncoder(const Tokenizer& tokenizer, Memory memory = Memory::words);

  [[nodiscard]] Status encode(std::string_view text, const EncodeOptions& options,
                              std::vector<std::uint32_t>& ids);
  /// Appends to `ids`. Errors: as Tokenizer::encode, and `ids` has some of the text's then.
  [[nodiscard]] Status encode(std::string_view text, bool add_special_tokens,
                              std::vector<std::uint32_t>& ids);

  /// Appends ids and spans, which count from the beginning of `text`. Errors: as
  /// Tokenizer::encode_with_spans, and `encoded` has some of the text's then.
  [[nodiscard]] Status encode_with_spans(std::string_view text, const EncodeOptions& options,
                                         EncodedText& encoded);

  /// Breaks in UTF-8 that were read as U+FFFD so far.
  [[nodiscard]] std::uint64_t replaced_count() const { return replaced_; }

 private:
  void word(std::string_view text, const TokenSpan* origins) override;
  void located_word(std::string_view text, const TokenSpan* origins);
  void cached_word(std::string_view text);
  void add_token(std::uint32_t id, std::string_view text, const TokenSpan* origins);
  [[nodiscard]] Status encode_framed(std::string_view text, const EncodeOptions& options);
  [[nodiscard]] Status encode_raw(std::string_view text);
  [[nodiscard]] Status encode_rendered(std::string_view text, const RenderedRules& rules);
  /// The tokens of raw_parts_, and what lies between them.
  [[nodiscard]] Status encode_between(std::string_view text, const RenderedRules& rules);
  [[nodiscard]] Status encode_part(std::string_view text, const TokenSpan* origins, bool at_start,
                                   const Normalizer& normalizer);

  std::shared_ptr<const TokenizerParts> parts_;
  std::unique_ptr<WordCache> cache_;
  WordModel::Scratch scratch_;
  std::vector<AddedTokens::Part> raw_parts_;
  std::vector<AddedTokens::Part> normal_parts_;
  std::string repaired_;
  std::string normal_;
  std::vector<std::uint32_t>* ids_ = nullptr;  ///< During encode().
  std::vector<TokenSpan>* spans_ = nullptr;    ///< During encode_with_spans().
  Origins origins_;                            ///< Of the text, where spans are wanted,
  Origins normal_origins_;                     ///< and of a part of it in normal form.
  std::vector<TokenSpan> places_;
  std::uint64_t replaced_ = 0;
};

struct EncodedDocuments {
  std::vector<std::vector<std::uint32_t>> ids;  ///< Of each document, in their order.
  std::uint64_t replaced_count = 0;             ///< As TextEncoder's.
};

/// Encodes documents on several threads, list after list, and remembers words from one list to the
/// next.
///
/// Threading: one caller; starts threads of its own during a call. Memory: 4 MiB a thread.
/// Invariant: TK-2 the result does not depend on how many they are.
class DocumentEncoder {
 public:
  /// On `threads` threads, the caller's among them (0 counts as 1).
  DocumentEncoder(const Tokenizer& tokenizer, unsigned threads);

  /// Errors: that of the first document that has one.
  [[nodiscard]] Result<EncodedDocuments> encode(std::span<const std::string_view> documents,
                                                bool add_special_tokens);

 private:
  std::vector<std::unique_ptr<TextEncoder>> encoders_;
};

}  // namespace train::storage
