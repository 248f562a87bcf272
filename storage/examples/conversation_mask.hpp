#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "storage/chat/chat_template.hpp"
#include "storage/examples/example.hpp"

namespace train::storage {

/// What one answer takes of a rendered text.
struct AnswerSpan {
  std::size_t begin_bytes = 0;
  std::size_t end_bytes = 0;
  std::size_t message = 0;  ///< Whose answer it is.

  bool operator==(const AnswerSpan&) const = default;
};

/// How the answers were found; in the order in which it is tried.
enum class MaskMethod : std::uint8_t {
  markers,   ///< The template says what the model says ({% generation %}; a built-in template).
  prefixes,  ///< Between what the template gives up to the answer and with it.
  located,   ///< By the answers' contents.
};
inline constexpr std::size_t mask_method_count = 3;

struct MaskedConversation {
  std::string text;
  /// Of every message of the assistant, in order; of the last one two where the template marks the
  /// end of the whole text, too.
  std::vector<AnswerSpan> answers;
  MaskMethod method = MaskMethod::markers;
};

/// Renders `conversation` and finds the answers of the assistant in it. Blocks as the template
/// does. With markers a span may end before the token that ends the turn; with prefixes it may end
/// behind it: see train_answers().
[[nodiscard]] std::variant<MaskedConversation, Dropped> mask_conversation(
    ChatTemplate& chat_template, const Conversation& conversation);

}  // namespace train::storage
