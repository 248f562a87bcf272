#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/examples/example.hpp"
#include "data/examples/line_members.hpp"

namespace train::data {

/// Messages in the form of chat templates, with their weights.
struct MessageList {
  std::vector<nlohmann::ordered_json> messages;
  std::vector<float> weights;
  std::vector<Remark> remarks = {};  ///< Unknown roles, weights on other roles.
};

/// Role by its name in chat templates; `known`: such a name exists.
struct MessageRole {
  std::string name;
  bool known = false;
};
[[nodiscard]] MessageRole message_role(std::string_view name);

/// `dropped`; if an unknown role may be its cause, for that reason, with the role.
[[nodiscard]] Dropped blame_role(Dropped dropped, const std::vector<Remark>& remarks);

/// Reads a list of messages with role and content, or ShareGPT's from and value; a single message;
/// or such a list as JSON text. "function_call" becomes a tool call of the assistant, "observation"
/// and "function" a tool's reply. "weight", "train" and "loss" set an answer's weight. An empty
/// system message is dropped.
[[nodiscard]] std::variant<MessageList, Dropped> message_list(const nlohmann::ordered_json& list);

/// True if a text is such a list as JSON, as in table cells.
[[nodiscard]] bool says_messages(const std::string& text);

/// True if a text is such a list as printed by Python or NumPy, which is not JSON.
[[nodiscard]] bool prints_messages(const std::string& text);

/// Single message with text content.
[[nodiscard]] MessageList text_message(const char* role, const std::string& content);

/// Appends messages.
void append(MessageList& list, const MessageList& more);

/// Appends an answer's messages to its prompt's, whose weights become 0.
[[nodiscard]] MessageList after_prompt(MessageList prompt, const MessageList& answer);

/// Makes the template's input of `list`, with the line's "tools" (a list, or its text; otherwise
/// its "functions") and "chat_template_kwargs".
[[nodiscard]] std::variant<ExampleText, Dropped> conversation_text(const MessageList& list,
                                                                   LineMembers& line,
                                                                   bool train_on_last);

}  // namespace train::data
