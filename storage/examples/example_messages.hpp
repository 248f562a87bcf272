#pragma once

#include <nlohmann/json.hpp>
#include <variant>
#include <vector>

#include "storage/examples/example.hpp"

// Messages as data sets write them, made those that templates take.
namespace train::storage {

/// Messages, and the weight of each: what it says itself ("weight" or "train"), else 1; 0 for all
/// but the assistant's.
struct MessageList {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  std::vector<float> weights = {};
};

/// `list` of {role, content} or of ShareGPT's {from, value}. Parts that are texts are joined;
/// members that are null are left out.
[[nodiscard]] std::variant<MessageList, Dropped> message_list(const nlohmann::ordered_json& list);

/// Puts an answer's messages behind its prompt's, which are not trained any more.
[[nodiscard]] MessageList after_prompt(MessageList prompt, const MessageList& answer);

/// Turns `list` into what is rendered. `line` may have "tools" and "chat_template_kwargs".
[[nodiscard]] std::variant<ExampleText, Dropped> conversation_text(
    const MessageList& list, const nlohmann::ordered_json& line, bool train_on_last);

}  // namespace train::storage
