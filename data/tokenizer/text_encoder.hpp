#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/models/word_cache.hpp"
#include "data/tokenizer/models/word_model.hpp"
#include "data/tokenizer/stages/added_tokens.hpp"
#include "data/tokenizer/stages/pre_tokenizer.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"

namespace train::data {

/// Encodes many texts, caching words: the fast way.
///
/// Threading: one per thread. Shares the tokenizer's data; owns its cache and buffers. Invariant:
/// TK-2 the cache never changes ids.
class TextEncoder : private WordSink {
 public:
  enum class Memory : std::uint8_t { words, none };

  explicit TextEncoder(const Tokenizer& tokenizer, Memory memory = Memory::words);

  [[nodiscard]] Status encode(std::string_view text, const EncodeOptions& options,
                              std::vector<std::uint32_t>& ids);
  /// Appends to `ids`. Errors: as Tokenizer::encode; `ids` then holds a part of the text's.
  [[nodiscard]] Status encode(std::string_view text, bool add_special_tokens,
                              std::vector<std::uint32_t>& ids);

  /// Appends ids and spans, which count from the beginning of `text`. Errors: as
  /// Tokenizer::encode_with_spans; `encoded` then holds a part of the text's.
  [[nodiscard]] Status encode_with_spans(std::string_view text, const EncodeOptions& options,
                                         EncodedText& encoded);

  /// Number of invalid UTF-8 sequences read as U+FFFD so far.
  [[nodiscard]] std::uint64_t replaced_count() const { return replaced_; }

 private:
  void word(std::string_view text, const storage::TokenSpan* origins) override;
  void located_word(std::string_view text, const storage::TokenSpan* origins);
  void cached_word(std::string_view text);
  void add_token(std::uint32_t id, std::string_view text, const storage::TokenSpan* origins);
  [[nodiscard]] Status encode_framed(std::string_view text, const EncodeOptions& options);
  [[nodiscard]] Status encode_raw(std::string_view text);
  [[nodiscard]] Status encode_rendered(std::string_view text, const RenderedRules& rules);
  /// Adds the tokens among the parts of a text; calls encode(bytes, origins, first) for the others.
  template <class Encode>
  [[nodiscard]] Status encode_parts(const std::vector<AddedTokens::Part>& parts,
                                    std::string_view text, const storage::TokenSpan* origins,
                                    const Encode& encode);
  /// Encodes the tokens of raw_parts_, and the text between them.
  [[nodiscard]] Status encode_between(std::string_view text, const RenderedRules& rules);
  [[nodiscard]] Status encode_part(std::string_view text, const storage::TokenSpan* origins,
                                   bool at_start, const Normalizer& normalizer);

  std::shared_ptr<const TokenizerParts> parts_;
  std::unique_ptr<WordCache> cache_;
  WordModel::Scratch scratch_;
  std::vector<AddedTokens::Part> raw_parts_;
  std::vector<AddedTokens::Part> normal_parts_;
  std::string repaired_;
  std::string normal_;
  std::vector<std::uint32_t>* ids_ = nullptr;         ///< Set during encode().
  std::vector<storage::TokenSpan>* spans_ = nullptr;  ///< Set during encode_with_spans().
  storage::Origins origins_;                          ///< Origins of the text, if spans are wanted,
  storage::Origins normal_origins_;                   ///< and of a part of it in normal form.
  std::vector<storage::TokenSpan> places_;
  std::uint64_t replaced_ = 0;
};

struct EncodedDocuments {
  std::vector<std::vector<std::uint32_t>> ids;  ///< One per document, in order.
  std::uint64_t replaced_count = 0;             ///< As in TextEncoder.
};

/// Encodes documents on several threads, list after list, keeping the word caches between lists.
///
/// Threading: one caller; starts threads of its own during a call. Memory: 4 MiB per thread.
/// Invariant: TK-2 the result does not depend on the number of threads.
class DocumentEncoder {
 public:
  /// Uses `threads` threads, the caller's included (0 counts as 1).
  DocumentEncoder(const Tokenizer& tokenizer, unsigned threads);

  /// Errors: that of the first document with one.
  [[nodiscard]] Result<EncodedDocuments> encode(std::span<const std::string_view> documents,
                                                bool add_special_tokens);

 private:
  std::vector<std::unique_ptr<TextEncoder>> encoders_;
};

}  // namespace train::data
