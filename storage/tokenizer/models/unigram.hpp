#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "storage/tokenizer/models/prefix_trie.hpp"
#include "storage/tokenizer/models/vocabulary.hpp"
#include "storage/tokenizer/text/origins.hpp"

namespace train::storage {

/// What a file says of a unigram language model, besides its pieces.
struct UnigramOptions {
  /// How the reference that made the file adds up: as PyPI's sentencepiece in floats, from the
  /// beginning of a whole text on, or as its tokenizers in doubles, word by word.
  enum class Sums : std::uint8_t { floats, doubles };

  Sums sums = Sums::floats;
  bool byte_fallback = false;  ///< Characters without a piece become pieces like <0x0A>.
  std::uint32_t unknown = 0;   ///< The piece that stands for what has none,
  double unknown_score = 0.0;  ///< and the score of each character that does.
};

/// A unigram language model: of all ways to write a word as pieces it takes the likeliest, that
/// with the highest sum of scores; of equal ones that with the longer last piece.
///
/// Threading: immutable; each thread brings a scratch.
/// Invariants: TK-1 rounds as the reference does, so that ways which are nearly as likely are told
/// apart as there. TK-3, O(n) steps for a word of n bytes and pieces of bounded length.
class Unigram {
 public:
  struct Piece {
    double score = 0.0;
    bool found = true;  ///< Text can give it.
  };

  /// Memory that words use one after the other.
  struct Scratch {
    struct End {
      double score = 0.0;        ///< Of the best pieces that end here.
      std::uint32_t length = 0;  ///< Of the last of them; 0: nothing ends here.
      std::uint32_t id = 0;
    };
    std::vector<End> ends;
    std::vector<std::size_t> path;
  };

  /// `pieces` by id. REQUIRES: as many as the vocabulary's ids; the unknown one among them.
  Unigram(Vocabulary vocabulary, std::vector<Piece> pieces, const UnigramOptions& options);

  /// Appends the ids of a word in UTF-8.
  void encode(std::string_view word, std::vector<std::uint32_t>& ids, Scratch& scratch) const;

  /// Appends where in `word` each of the ids stands that encode() gives for it.
  void locate(std::string_view word, std::vector<TokenSpan>& places) const;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  class Output;

  void encode(std::string_view word, Output& output, Scratch& scratch) const;
  template <class Real>
  void find_path(std::string_view word, Output& output, Scratch& scratch) const;
  template <class Real>
  std::size_t extend(std::string_view word, std::size_t from, std::size_t done,
                     Scratch& scratch) const;

  Vocabulary vocabulary_;
  std::vector<Piece> pieces_;
  UnigramOptions options_;
  PrefixTrie trie_;
  std::array<std::uint32_t, 256> byte_ids_{};
};

}  // namespace train::storage
