#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/models/pair_table.hpp"
#include "storage/tokenizer/models/vocabulary.hpp"
#include "storage/tokenizer/text/origins.hpp"

namespace train::storage {

/// What a file says of a byte pair encoding, besides its vocabulary and merges.
struct BpeOptions {
  bool byte_level = false;     ///< Words are bytes, written in the vocabulary as in byte_level.hpp.
  bool ignore_merges = false;  ///< A word of the vocabulary is one token, merges or not.
  bool byte_fallback = false;  ///< Characters without a token become tokens like <0x0A>.
  bool fuse_unk = false;       ///< Unknown neighbours are one token.
  std::optional<std::string> unk_token;
};

/// Turns words into ids: pairs merge in the order of their ranks, the leftmost of equals first.
///
/// Threading: immutable; each thread brings a scratch.
/// Invariant: TK-3, O(n log n) steps for a word of n bytes.
class Bpe {
 public:
  /// A merge as two texts of the vocabulary.
  struct MergeTexts {
    std::string_view left;
    std::string_view right;
  };

  /// Memory that words use one after the other.
  struct Scratch {
    struct Symbol {
      std::uint32_t id = 0;
      std::uint32_t rank = PairTable::no_rank;  ///< Of the pair that it begins.
      std::uint32_t merged = 0;                 ///< What that pair gives.
      std::uint32_t previous = 0;
      std::uint32_t next = 0;
    };
    std::vector<std::uint32_t> ids;
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;
  };

  /// Merges in the order of their ranks. Errors (user): a merge names or gives a text that the
  /// vocabulary lacks; so does the unknown token.
  static Result<Bpe> from_merges(Vocabulary vocabulary, std::span<const MergeTexts> merges,
                                 BpeOptions options);

  /// Of bytes: every two tokens whose texts make up a third merge to it, and its id is the rank.
  static Bpe from_ranks(Vocabulary vocabulary);
  /// Of characters: the same with `ranks` by id; of those without one nothing is made, nor are
  /// they, unless of one character. Errors (user): a text with a rank has a character without id.
  static Result<Bpe> from_ranks(Vocabulary vocabulary, std::span<const std::uint32_t> ranks,
                                BpeOptions options);

  /// Appends the ids of a word. `word` is UTF-8 unless byte_level.
  void encode(std::string_view word, std::vector<std::uint32_t>& ids, Scratch& scratch) const;

  /// Appends where in `word` each of the ids stands that encode() gives for it. Tokens for the
  /// bytes of a character stand for all of it. REQUIRES: those ids.
  void locate(std::string_view word, std::span<const std::uint32_t> ids,
              std::vector<TokenSpan>& places) const;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }
  /// No token goes on after a character with a new "▁", so that words may be cut before each.
  [[nodiscard]] bool cuts_before_marker() const { return cuts_before_marker_; }

 private:
  static constexpr std::uint32_t no_id = 0xffffffffU;

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
  Vocabulary whole_words_;  ///< Of byte_level with ignore_merges: by the bytes themselves.
  std::array<std::uint32_t, 256> byte_ids_{};      ///< byte_level: of each byte.
  std::array<std::uint32_t, 256> fallback_ids_{};  ///< byte_fallback: of each byte.
  std::vector<std::uint32_t> character_ids_;       ///< Of each code point below 65536.
  std::uint32_t unk_id_ = no_id;
  bool cuts_before_marker_ = false;
};

}  // namespace train::storage
