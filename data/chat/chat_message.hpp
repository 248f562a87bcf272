#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// Message of a conversation: role, content, and all other members of its JSON. A template may read
/// every member, and print them in order.
class ChatMessage {
 public:
  /// Invalid UTF-8 is read as U+FFFD.
  ChatMessage(const std::string& role, const std::string& content);
  /// Errors (user): not an object; role missing or not a string; content that is neither a string,
  /// a list of parts, nor null (it may be missing beside tool_calls). The error does not name the
  /// message.
  static Result<ChatMessage> from_json(const nlohmann::ordered_json& object);

  [[nodiscard]] const std::string& role() const { return role_; }
  /// Empty if missing, null, or a list of parts.
  [[nodiscard]] const std::optional<std::string>& content() const { return content_; }
  /// The whole message as a JSON object on one line, with name, tool_calls and all other members.
  [[nodiscard]] const std::string& json() const { return json_; }

 private:
  ChatMessage() = default;

  std::string role_;
  std::optional<std::string> content_;
  std::string json_;
};

/// Input of a template.
struct Conversation {
  std::vector<ChatMessage> messages = {};
  std::string tools = {};      ///< JSON list of the model's tools; empty: not given.
  std::string variables = {};  ///< JSON object of extra template variables; empty: none.
};

/// Limits of a conversation: bytes of text, and depth of brackets.
inline constexpr std::size_t kConversationLimitBytes = std::size_t{64} << 20U;
inline constexpr std::size_t kConversationLimitDepth = 64;

/// Parses a list of messages, or an object (a line of a data set) with such a list as its member
/// "messages" and optionally "tools" (a list) and "chat_template_kwargs" (an object: the
/// variables); other members are ignored. Errors (user): name the message, counted from 1, and the
/// fault.
[[nodiscard]] Result<Conversation> conversation_from_json(const nlohmann::ordered_json& value);

/// Parses a conversation from JSON text. Errors (user): also invalid JSON, with its line; too long
/// or too deep.
[[nodiscard]] Result<Conversation> parse_conversation(std::string_view text);

}  // namespace train::data
