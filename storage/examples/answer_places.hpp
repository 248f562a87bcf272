#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "storage/chat/chat_template.hpp"
#include "storage/examples/example.hpp"

namespace train::storage {

/// What one answer takes of a rendered text.
struct AnswerSpan {
  std::size_t begin_bytes = 0;
  std::size_t end_bytes = 0;
  /// Whose answer it is.
  std::size_t message = 0;
  /// The bytes before the end that stand behind what the message says, up to the end of its turn:
  /// of those a token is the answer's only if it lies within.
  std::size_t tail_bytes = 0;
  /// Where what the message says ends, if that is known: special tokens before it are words of the
  /// message, those behind it end its turn. 0: not known.
  std::size_t said_end_bytes = 0;

  bool operator==(const AnswerSpan&) const = default;
};

/// Where `answers` (messages of the assistant, in order) stand in `whole`, which is the
/// conversation as the template writes it: from behind the text that asks for the answer to the end
/// of its turn. The conversation is rendered again with other texts in the place of the answers'
/// contents, so that nothing is searched for that may stand elsewhere, too: of all answers
/// together, and where that does not tell it of each answer alone. Blocks as the template does.
/// AP-1: a place is that of the answer, or none is given. Dropped: names the message and what the
/// template does that leaves its place unknown.
[[nodiscard]] std::variant<std::vector<AnswerSpan>, Dropped> place_answers(
    ChatTemplate& chat_template, const Conversation& conversation, std::string_view whole,
    std::span<const std::size_t> answers);

}  // namespace train::storage
