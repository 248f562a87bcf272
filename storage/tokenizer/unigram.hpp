#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "storage/tokenizer/prefix_trie.hpp"
#include "storage/tokenizer/sentencepiece_model.hpp"
#include "storage/tokenizer/vocabulary.hpp"

namespace train::storage {

/// A unigram language model of SentencePiece: of all ways to write a text as pieces it takes the
/// likeliest. Sums are rounded to float, from the beginning of the text on; where two ways are
/// nearly as likely, in texts of 100 kB and more, the reference may round to the other.
///
/// Threading: immutable; each thread brings a scratch.
/// Invariant: TK-3, O(n) steps for a text of n bytes and pieces of bounded length.
class Unigram {
 public:
  /// Memory that texts use one after the other.
  struct Scratch {
    struct End {
      float score = 0.0F;        ///< Of the best pieces that end here.
      std::uint32_t length = 0;  ///< Of the last of them; 0: nothing ends here.
      std::uint32_t id = 0;
    };
    std::vector<End> ends;
    std::vector<std::size_t> path;
  };

  /// `vocabulary` has the pieces of `model` by their places. REQUIRES: the model is checked.
  Unigram(Vocabulary vocabulary, const SentencePieceModel& model);

  /// Appends the ids of a text in UTF-8.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids, Scratch& scratch) const;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Output;

  std::size_t extend(std::string_view text, std::size_t from, std::size_t done,
                     Scratch& scratch) const;
  static void flush(std::string_view text, std::size_t size, Scratch& scratch, Output& output);

  Vocabulary vocabulary_;
  PrefixTrie trie_;
  std::vector<float> scores_;  ///< By id.
  std::vector<bool> user_defined_;
  float max_score_ = 0.0F;  ///< What a user's own piece has for each byte.
  float unknown_score_ = 0.0F;
  std::uint32_t unknown_ = 0;
  bool byte_fallback_ = false;
  std::array<std::uint32_t, 256> byte_ids_{};
};

}  // namespace train::storage
