#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "storage/chat/chat_template.hpp"
#include "storage/examples/conversation_mask.hpp"
#include "storage/examples/example.hpp"
#include "storage/examples/keyword_mask.hpp"
#include "storage/rows/row_writer.hpp"
#include "storage/tokenizer/text_encoder.hpp"
#include "storage/tokenizer/tokenizer.hpp"

namespace train::storage {

/// The tokens of an example, with what is trained of them.
struct EncodedExample {
  Example example = {};  ///< Without its texts.
  RowText text = {};
  RowText worse = {};  ///< Of a preference.
  std::optional<MaskMethod> method = {};
  bool truncated = false;
  std::vector<Remark> remarks = {};  ///< Each once.
  bool merged = false;  ///< The prompt's last token and the answer's first one became one.
};

struct EncoderSettings {
  std::string chat_template = {};  ///< As ChatTemplate::find() takes it.
  ChatSettings chat = {};
  std::uint32_t row_length = 0;
  bool truncates = true;  ///< false: documents of any length.
  /// Of a plain text those tokens alone are trained; null: all.
  std::shared_ptr<const KeywordMask> keywords = {};
};

/// Marks as trained what overlaps the answers: of each the token that ends its turn too, though it
/// stands right behind the span (D-R2), and not the white space behind that token, which is never
/// asked for. The first token is never trained. `weights` are of all messages. Pure.
[[nodiscard]] RowText train_answers(const Tokenizer& tokenizer, const EncodedText& encoded,
                                    std::span<const AnswerSpan> answers,
                                    std::span<const float> weights, std::string_view end_of_turn);

/// Encodes examples, one after the other. Threading: one for each thread; its template's process
/// ends with the thread that encoded first.
class ExampleEncoder {
 public:
  /// REQUIRES: the tokenizer has an end-of-text.
  ExampleEncoder(Tokenizer tokenizer, EncoderSettings settings);

  /// Errors: those that are not of this example: no template, no program that renders it.
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

}  // namespace train::storage
