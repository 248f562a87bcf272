#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/chat/chat_template.hpp"
#include "data/examples/answer_parts.hpp"
#include "data/examples/conversation_mask.hpp"
#include "data/examples/example.hpp"
#include "data/examples/keyword_mask.hpp"
#include "data/rows/row_writer.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/tokenizer.hpp"

namespace train::data {

/// Tokens of an example, with the trained ones marked.
struct EncodedExample {
  Example example = {};  ///< Texts are moved out.
  RowText text = {};
  RowText worse = {};  ///< Rejected answer of a preference.
  std::optional<MaskMethod> method = {};
  bool truncated = false;
  std::vector<Remark> remarks = {};  ///< Without duplicates.
  bool merged = false;               ///< The prompt's last and the answer's first token merged.
};

struct EncoderSettings {
  std::string chat_template = {};  ///< Argument of ChatTemplate::find().
  ChatSettings chat = {};
  std::uint32_t row_length = 0;
  bool truncates = true;                ///< false: documents may have any length.
  AnswerPart part = AnswerPart::whole;  ///< Train only this part of answers in conversations.
  /// Train only these tokens of a plain text; null: all.
  std::shared_ptr<const KeywordMask> keywords = {};
};

/// Marks as trained the tokens that overlap the answers. That includes the token that ends the
/// turn, even directly behind the span (D-R2), but not the white space behind that token, which is
/// never generated. The first token is never trained. `weights` has one entry per message. Pure.
[[nodiscard]] RowText train_answers(const Tokenizer& tokenizer, const EncodedText& encoded,
                                    std::span<const AnswerSpan> answers,
                                    std::span<const float> weights, std::string_view end_of_turn);

/// Encodes examples one after the other. Threading: one per thread; the template's process ends
/// with the thread that encoded first.
class ExampleEncoder {
 public:
  /// REQUIRES: the tokenizer has an end-of-text token.
  ExampleEncoder(Tokenizer tokenizer, EncoderSettings settings);

  /// Errors: those not specific to the example: no template, no program to render it.
  Result<std::variant<EncodedExample, Dropped>> encode(Example example);

 private:
  using TextOrDropped = std::variant<RowText, Dropped>;
  Status open_template();
  TextOrDropped encode_text(const ExampleText& text, EncodedExample& encoded);
  TextOrDropped encode_conversation(const ExampleText& text, EncodedExample& encoded);
  TextOrDropped encode_completion(const ExampleText& text, EncodedExample& encoded);
  TextOrDropped encode_plain(const ExampleText& text);
  TextOrDropped encode_keywords(const std::string& text);
  void truncate(EncodedExample& encoded) const;
  std::optional<Dropped> judge(const EncodedExample& encoded) const;

  Tokenizer tokenizer_;
  EncoderSettings settings_;
  TextEncoder encoder_;
  std::optional<ChatTemplate> template_;
};

}  // namespace train::data
