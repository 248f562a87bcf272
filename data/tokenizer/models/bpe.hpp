#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/models/pair_table.hpp"
#include "data/tokenizer/models/vocabulary.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

/// Options of a byte pair encoding, besides vocabulary and merges.
struct BpeOptions {
  bool byte_level = false;     ///< Words are bytes, in the vocabulary's notation of byte_level.hpp.
  bool ignore_merges = false;  ///< A word in the vocabulary is one token, whatever the merges.
  bool byte_fallback = false;  ///< Characters without a token become byte tokens like <0x0A>.
  bool fuse_unk = false;       ///< Adjacent unknown characters become one token.
  std::optional<std::string> unk_token;
};

/// Encodes words by byte pair encoding: pairs merge in rank order, the leftmost first on ties.
///
/// Threading: immutable; each thread has its own scratch. Invariant: TK-3, O(n log n) steps for a
/// word of n bytes.
class Bpe {
 public:
  /// A merge as two texts of the vocabulary.
  struct MergeTexts {
    std::string_view left;
    std::string_view right;
  };

  /// Working memory, reused from word to word.
  struct Scratch {
    struct Symbol {
      std::uint32_t id = 0;
      std::uint32_t rank = PairTable::kNoRank;  ///< Rank of the pair that begins here.
      std::uint32_t merged = 0;                 ///< Result of merging that pair.
      std::uint32_t previous = 0;
      std::uint32_t next = 0;
    };
    std::vector<std::uint32_t> ids;
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;
  };

  /// Merges are in rank order. Errors (user): a merge's input or result is missing from the
  /// vocabulary; so is the unknown token.
  static Result<Bpe> from_merges(Vocabulary vocabulary, std::span<const MergeTexts> merges,
                                 BpeOptions options);

  /// From byte tokens: any two tokens whose concatenation is a token merge to it, with its id as
  /// rank.
  static Bpe from_ranks(Vocabulary vocabulary);
  /// From character tokens, with `ranks` by id; tokens without a rank are never merged to, and
  /// merge no further unless of one character. Errors (user): a ranked token contains a character
  /// without an id.
  static Result<Bpe> from_ranks(Vocabulary vocabulary, std::span<const std::uint32_t> ranks,
                                BpeOptions options);

  /// Appends the ids of a word. `word` is UTF-8 unless byte_level.
  void encode(std::string_view word, std::vector<std::uint32_t>& ids, Scratch& scratch) const;

  /// Appends the place in `word` of each id from encode(). Byte tokens of a character stand for the
  /// whole character. REQUIRES: those ids.
  void locate(std::string_view word, std::span<const std::uint32_t> ids,
              std::vector<storage::TokenSpan>& places) const;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  /// No token continues past a character with a new "▁", so words may be cut before each.
  [[nodiscard]] bool cuts_before_marker() const { return cuts_before_marker_; }

 private:
  static constexpr std::uint32_t kNoId = 0xffffffffU;

  Bpe(Vocabulary vocabulary, BpeOptions options);
  void find_symbols();
  void find_whole_words();
  void find_marker_cuts(std::span<const MergeTexts> merges);
  void merge_by_rank(std::span<const std::uint32_t> ranks);
  template <class Add>
  void split_characters(std::string_view word, const Add& add) const;
  void merge_few(std::vector<std::uint32_t>& out, Scratch& scratch) const;
  void merge_many(std::vector<std::uint32_t>& out, Scratch& scratch) const;
  [[nodiscard]] std::uint32_t character_id(std::string_view character) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  PairTable pairs_;
  Vocabulary whole_words_;  ///< byte_level with ignore_merges: keyed by the raw bytes.
  std::array<std::uint32_t, 256> byte_ids_{};      ///< byte_level: for each byte.
  std::array<std::uint32_t, 256> fallback_ids_{};  ///< byte_fallback: for each byte.
  std::vector<std::uint32_t> character_ids_;       ///< For each code point below 65536.
  std::uint32_t unk_id_ = kNoId;
  bool cuts_before_marker_ = false;
};

}  // namespace train::data
