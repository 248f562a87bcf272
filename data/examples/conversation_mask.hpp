#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/chat/chat_template.hpp"
#include "data/examples/answer_places.hpp"
#include "data/examples/example.hpp"

namespace train::data {

/// Method that located the answers; in the order in which they are tried.
enum class MaskMethod : std::uint8_t {
  markers,       ///< The template marks them ({% generation %}; a built-in template).
  placeholders,  ///< Other texts in place of the answers: see place_answers().
};
inline constexpr std::size_t kMaskMethodCount = 2;

struct MaskedConversation {
  std::string text;
  /// Answers of the trained assistant messages, and possibly of others; several per message if the
  /// template marks several.
  std::vector<AnswerSpan> answers;
  MaskMethod method = MaskMethod::markers;
  /// Parts of the conversation that the template does not print unchanged: "content of system",
  /// "reasoning_content", "tools", ...
  std::vector<std::string> left_out = {};
  /// Message members that the template does not read.
  std::vector<std::string> not_read = {};
};

/// Renders `conversation` and locates the assistant's answers with non-zero weight; `weights` has
/// one entry per message. Blocks like the template. With markers a span may end before or after the
/// token that ends the turn: see train_answers(). A message without content never becomes Jinja's
/// text "None", and tool call arguments that are JSON text are not escaped twice. Dropped: also a
/// tool call that the template does not print.
[[nodiscard]] std::variant<MaskedConversation, Dropped> mask_conversation(
    ChatTemplate& chat_template, Conversation conversation, std::span<const float> weights);

}  // namespace train::data
