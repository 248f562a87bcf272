#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/stages/sentencepiece_rules.hpp"

namespace train::data {

/// Contents of a SentencePiece file needed to encode and decode. Texts point into its bytes.
struct SentencePieceModel {
  enum class Kind : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class PieceType : std::uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };
  struct Piece {
    std::string_view text;
    float score = 0.0F;
    PieceType type = PieceType::normal;
  };
  std::vector<Piece> pieces;  ///< By id.
  Kind kind = Kind::unigram;
  /// Normalisation of text before splitting, but for `user_defined`, which `pieces` has.
  SentencePieceRules::Settings rules;
  bool has_denormalizer = false;  ///< Decoded text has a character map of its own.
  bool byte_fallback = false;
  std::string_view begin_text = "<s>";
  std::string_view end_text = "</s>";
  std::string_view unknown_surface = " \u2047 ";  ///< Decoded text of the unknown piece.
};

/// True if a file begins like a SentencePiece model.
[[nodiscard]] bool is_sentencepiece_model(std::string_view bytes);

/// Parses the protocol buffer; unknown fields are skipped. Memory is proportional to `bytes`, which
/// must outlive the result. Errors (user): truncated or damaged; invalid pieces.
[[nodiscard]] Result<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes);

}  // namespace train::data
