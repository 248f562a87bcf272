#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "data/chat/chat_template.hpp"
#include "data/examples/example.hpp"

namespace train::data {

/// Place of one answer in a rendered text.
struct AnswerSpan {
  std::size_t begin_bytes = 0;
  std::size_t end_bytes = 0;
  /// Index of the answer's message.
  std::size_t message = 0;
  /// Bytes between the end of the message's content and the end of its turn: a token here belongs
  /// to the answer only if it lies within the span.
  std::size_t tail_bytes = 0;
  /// End of the message's content, if known: special tokens before it are part of the content,
  /// those after it end the turn. 0: unknown.
  std::size_t said_end_bytes = 0;

  bool operator==(const AnswerSpan&) const = default;
};

/// Places of `answers` (assistant messages, in order) in `whole`, the conversation as the template
/// renders it: each from after the generation prompt to the end of its turn. The conversation is
/// rendered again with other texts in place of the answers' contents, so no text is searched that
/// might also occur elsewhere; first with all answers replaced, then, if ambiguous, with each
/// alone. Blocks like the template. AP-1: a place is correct, or none is given. Dropped: names the
/// message and the template behaviour that hides its place.
[[nodiscard]] std::variant<std::vector<AnswerSpan>, Dropped> place_answers(
    ChatTemplate& chat_template, const Conversation& conversation, std::string_view whole,
    std::span<const std::size_t> answers);

}  // namespace train::data
