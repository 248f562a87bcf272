#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// What a SentencePiece file says, as far as encoding and decoding ask. Texts lie in its bytes.
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
  /// How text is changed before it is cut, or after it was put together.
  struct Rules {
    std::string_view character_map;  ///< See CharacterMap; empty: none.
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;
  };

  std::vector<Piece> pieces;  ///< By id.
  Kind kind = Kind::unigram;
  Rules rules;
  bool has_denormalizer = false;  ///< Decoded text is changed by a map of its own.
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string_view begin_text = "<s>";
  std::string_view end_text = "</s>";
  std::string_view unknown_surface = " \u2047 ";  ///< What the unknown piece decodes to.
};

/// Whether a file begins as a SentencePiece model does.
[[nodiscard]] bool is_sentencepiece_model(std::string_view bytes);

/// Reads a protocol buffer of the format's messages; fields it does not know are passed over.
/// Memory: of the order of `bytes`, which have to outlive the result.
/// Errors (user): broken off or damaged; pieces that the format does not allow.
[[nodiscard]] Result<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes);

}  // namespace train::storage
