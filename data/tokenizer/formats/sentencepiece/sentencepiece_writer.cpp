#include "data/tokenizer/formats/sentencepiece/sentencepiece_writer.hpp"

#include <bit>

namespace train::data {
namespace {

/// Appends fields to a protocol buffer message.
class MessageWriter {
 public:
  MessageWriter& number(unsigned field, std::uint64_t value) {
    varint(field << 3U);
    varint(value);
    return *this;
  }
  MessageWriter& bytes(unsigned field, std::string_view value) {
    varint(field << 3U | 2U);
    varint(value.size());
    message_ += value;
    return *this;
  }
  MessageWriter& real(unsigned field, float value) {
    varint(field << 3U | 5U);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (unsigned shift = 0; shift < 32; shift += 8) {
      message_.push_back(static_cast<char>(static_cast<unsigned char>(bits >> shift)));
    }
    return *this;
  }

  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) {
      message_.push_back(static_cast<char>(static_cast<unsigned char>(value | 0x80U)));
    }
    message_.push_back(static_cast<char>(value));
  }

  std::string message_;
};

}  // namespace

std::string sentencepiece_file(const SentencePieceModel& model) {
  MessageWriter file;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    MessageWriter message;
    message.bytes(1, piece.text).real(2, piece.score);
    message.number(3, static_cast<std::uint64_t>(piece.type));
    file.bytes(1, message.message());
  }
  MessageWriter trainer;
  trainer.number(3, static_cast<std::uint64_t>(model.kind))
      .number(24, model.rules.whitespace_as_suffix ? 1 : 0)
      .number(35, model.byte_fallback ? 1 : 0)
      .bytes(44, model.unknown_surface)
      .bytes(46, model.begin_text)
      .bytes(47, model.end_text);
  MessageWriter rules;
  rules.bytes(1, "identity")
      .bytes(2, model.rules.character_map)
      .number(3, model.rules.add_dummy_prefix ? 1 : 0)
      .number(4, model.rules.remove_extra_whitespaces ? 1 : 0)
      .number(5, model.rules.escape_whitespaces ? 1 : 0);
  return file.bytes(2, trainer.message()).bytes(3, rules.message()).message();
}

}  // namespace train::data
