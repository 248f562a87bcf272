#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"

#include <fmt/format.h>

#include <bitset>
#include <cmath>

#include "data/tokenizer/formats/message_fields.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

using Model = SentencePieceModel;
using PieceType = Model::PieceType;

constexpr std::size_t kPieceLimit = std::size_t{1} << 22U;
constexpr char kPiecesTag = '\x0a';  // Field 1, bytes: the beginning of every such file.

Error damaged() { return user_error("not a SentencePiece model, or a truncated or damaged one"); }

/// Calls `each` with every field of a message; false if malformed or if a call fails.
template <class Each>
bool read_fields(std::string_view message, Each&& each) {
  MessageFields fields(message);
  while (const auto field = fields.next()) {
    if (!each(*field)) {
      return false;
    }
  }
  return !fields.broken();
}

bool read_piece(std::string_view message, Model::Piece& piece) {
  return read_fields(message, [&](const MessageFields::Field& field) {
    switch (field.number) {
      case 1:
        piece.text = field.bytes;
        return field.holds_bytes;
      case 2:
        piece.score = field.real();
        return !field.holds_bytes && std::isfinite(piece.score);
      case 3:
        piece.type = static_cast<PieceType>(field.value);
        return !field.holds_bytes && field.value >= 1 && field.value <= 6;
      default:
        return true;
    }
  });
}

bool read_trainer(std::string_view message, Model& model) {
  return read_fields(message, [&](const MessageFields::Field& field) {
    switch (field.number) {
      case 3:
        model.kind = static_cast<Model::Kind>(field.value);
        return field.value >= 1 && field.value <= 4;
      case 24:
        model.rules.whitespace_as_suffix = field.flag();
        return true;
      case 35:
        model.byte_fallback = field.flag();
        return true;
      case 44:
        model.unknown_surface = field.bytes;
        return true;
      case 46:
        model.begin_text = field.bytes;
        return true;
      case 47:
        model.end_text = field.bytes;
        return true;
      default:
        return true;
    }
  });
}

bool read_rules(std::string_view message, SentencePieceRules::Settings& rules) {
  return read_fields(message, [&](const MessageFields::Field& field) {
    switch (field.number) {
      case 2:
        rules.character_map = field.bytes;
        return true;
      case 3:
        rules.add_dummy_prefix = field.flag();
        return true;
      case 4:
        rules.remove_extra_whitespaces = field.flag();
        return true;
      case 5:
        rules.escape_whitespaces = field.flag();
        return true;
      default:
        return true;
    }
  });
}

/// Byte of a piece like <0x0A>.
std::optional<unsigned> byte_of(std::string_view text) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (text == fmt::format("<0x{:02X}>", byte)) {
      return byte;
    }
  }
  return std::nullopt;
}

/// Checks the format's rules for pieces, except uniqueness.
Status check_pieces(const Model& model) {
  std::bitset<256> bytes;
  std::size_t unknown = 0;
  for (const Model::Piece& piece : model.pieces) {
    if (piece.text.empty() || storage::valid_prefix(piece.text) != piece.text.size()) {
      return user_error(fmt::format("piece {} is not a text", storage::shown(piece.text)));
    }
    unknown += piece.type == PieceType::unknown ? 1 : 0;
    if (piece.type == PieceType::byte) {
      const auto byte = byte_of(piece.text);
      if (!byte || !model.byte_fallback) {
        return user_error(fmt::format("piece {} is marked as a byte{}", storage::shown(piece.text),
                                      byte ? ", but the model has no byte_fallback" : ""));
      }
      bytes.set(*byte);
    }
  }
  if (unknown != 1) {
    return user_error(
        fmt::format("{} pieces are marked as unknown; exactly one is needed", unknown));
  }
  if (model.byte_fallback && !bytes.all()) {
    return user_error(fmt::format("byte_fallback needs a piece for each byte; {} of 256 are there",
                                  bytes.count()));
  }
  return {};
}

}  // namespace

bool is_sentencepiece_model(std::string_view bytes) {
  // A rank file is text, with at most one empty line at its beginning.
  return bytes.size() > 2 && bytes[0] == kPiecesTag && bytes[2] == kPiecesTag;
}

Result<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes) {
  Model model;
  bool has_trainer = false;
  bool has_rules = false;
  const bool read = read_fields(bytes, [&](const MessageFields::Field& field) {
    switch (field.number) {
      case 1:
        model.pieces.emplace_back();
        return model.pieces.size() <= kPieceLimit && read_piece(field.bytes, model.pieces.back());
      case 2:
        has_trainer = true;
        return read_trainer(field.bytes, model);
      case 3:
        has_rules = true;
        return read_rules(field.bytes, model.rules);
      case 5: {
        SentencePieceRules::Settings rules;
        const bool fits = read_rules(field.bytes, rules);
        model.has_denormalizer = !rules.character_map.empty();
        return fits;
      }
      default:
        return true;
    }
  });
  if (model.pieces.size() > kPieceLimit) {
    return user_error(fmt::format("more than {} pieces", kPieceLimit));
  }
  // A file truncated between two fields still parses.
  if (!read || !has_trainer || !has_rules) {
    return damaged();
  }
  TRAIN_RETURN_IF_ERROR(check_pieces(model));
  return model;
}

}  // namespace train::data
