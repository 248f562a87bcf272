#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "storage/chat/chat_template.hpp"
#include "storage/examples/answer_places.hpp"
#include "storage/examples/example.hpp"

namespace train::storage {

/// How the answers were found; in the order in which it is tried.
enum class MaskMethod : std::uint8_t {
  markers,       ///< The template says what the model says ({% generation %}; a built-in template).
  placeholders,  ///< By other texts in the place of the answers: see place_answers().
};
inline constexpr std::size_t mask_method_count = 2;

struct MaskedConversation {
  std::string text;
  /// Of the messages of the assistant that are trained, perhaps of others; several of one where the
  /// template marks several.
  std::vector<AnswerSpan> answers;
  MaskMethod method = MaskMethod::markers;
  /// What the conversation says and the template does not write as it is said: "content of system",
  /// "reasoning_content", "tools", ...
  std::vector<std::string> left_out = {};
  /// Members of messages that the template does not ask for.
  std::vector<std::string> not_read = {};
};

/// Renders `conversation` and finds the answers of the assistant in it whose weight is not 0;
/// `weights` are of all messages. Blocks as the template does. With markers a span may end before
/// the token that ends the turn, or behind it: see train_answers(). A message without content is
/// never the text "None" of Jinja, and arguments of a call that are a JSON text are not escaped a
/// second time. Dropped: also a call that the template does not write.
[[nodiscard]] std::variant<MaskedConversation, Dropped> mask_conversation(
    ChatTemplate& chat_template, Conversation conversation, std::span<const float> weights);

}  // namespace train::storage
