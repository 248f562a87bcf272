#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizer/models/prefix_trie.hpp"
#include "data/tokenizer/models/vocabulary.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

/// Options of a unigram language model, besides its pieces.
struct UnigramOptions {
  /// Summation of the reference program: PyPI's sentencepiece adds floats, over a whole text;
  /// tokenizers adds doubles, word by word.
  enum class Sums : std::uint8_t { floats, doubles };

  Sums sums = Sums::floats;
  bool byte_fallback = false;  ///< Characters without a piece become byte pieces like <0x0A>.
  std::uint32_t unknown = 0;   ///< Id for characters without a piece,
  double unknown_score = 0.0;  ///< and the score of each such character.
};

/// Unigram language model: splits a word into the pieces with the highest sum of scores; on ties
/// the longer last piece wins.
///
/// Threading: immutable; each thread has its own scratch. Invariants: TK-1 rounds like the
/// reference, so that near ties are resolved alike. TK-3, O(n) steps for a word of n bytes and
/// pieces of bounded length.
class Unigram {
 public:
  struct Piece {
    double score = 0.0;
    bool found = true;  ///< May be produced from text.
  };

  /// Working memory, reused from word to word.
  struct Scratch {
    struct End {
      double score = 0.0;        ///< Score of the best pieces that end here.
      std::uint32_t length = 0;  ///< Length of the last of them; 0: nothing ends here.
      std::uint32_t id = 0;
    };
    std::vector<End> ends;
    std::vector<std::size_t> path;
  };

  /// `pieces` by id. REQUIRES: one per id of the vocabulary; the unknown one among them.
  Unigram(Vocabulary vocabulary, std::vector<Piece> pieces, const UnigramOptions& options);

  /// Appends the ids of a word in UTF-8.
  void encode(std::string_view word, std::vector<std::uint32_t>& ids, Scratch& scratch) const;

  /// Appends the place in `word` of each id from encode().
  void locate(std::string_view word, std::vector<storage::TokenSpan>& places) const;

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

}  // namespace train::data
