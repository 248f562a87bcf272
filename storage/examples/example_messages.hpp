#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "storage/examples/example.hpp"
#include "storage/examples/line_members.hpp"

namespace train::storage {

/// Messages in the form of chat templates, and what each of them counts.
struct MessageList {
  std::vector<nlohmann::ordered_json> messages;
  std::vector<float> weights;
  std::vector<Remark> remarks = {};  ///< Roles that are not known, weights of others.
};

/// A role by the name that chat templates have for it; `known`: whether there is one.
struct MessageRole {
  std::string name;
  bool known = false;
};
[[nodiscard]] MessageRole message_role(std::string_view name);

/// Reads a list of messages: with role and content, or ShareGPT's from and value; one message
/// alone; such a list as a JSON text. "function_call" becomes a call of the assistant,
/// "observation" and "function" what a tool says. "weight", "train" and "loss" say what an answer
/// counts. A message of the system without content says nothing and is left out.
[[nodiscard]] std::variant<MessageList, Dropped> message_list(const nlohmann::ordered_json& list);

/// Whether a text is such a list as JSON: what tables have in the place of one.
[[nodiscard]] bool says_messages(const std::string& text);

/// Whether a text is such a list as Python or NumPy prints it, which is no JSON.
[[nodiscard]] bool prints_messages(const std::string& text);

/// One message of texts.
[[nodiscard]] MessageList text_message(const char* role, const std::string& content);

/// Puts messages behind others.
void append(MessageList& list, const MessageList& more);

/// Puts an answer's messages behind its prompt's, which are not trained any more.
[[nodiscard]] MessageList after_prompt(MessageList prompt, const MessageList& answer);

/// Turns `list` into what is rendered, with the line's "tools" (a list, or a text of one; else its
/// "functions") and "chat_template_kwargs".
[[nodiscard]] std::variant<ExampleText, Dropped> conversation_text(const MessageList& list,
                                                                   LineMembers& line,
                                                                   bool train_on_last);

}  // namespace train::storage
