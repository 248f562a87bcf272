#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// One turn of a conversation: who says what, and whatever else its file says of it. A template may
/// look at every member, and print them in their order.
class ChatMessage {
 public:
  /// Bytes that are not UTF-8 are read as U+FFFD.
  ChatMessage(const std::string& role, const std::string& content);
  /// Errors (user): not an object; no role, or one that is no text; content that is neither a text,
  /// nor a list of parts, nor null (it may be missing beside tool_calls). Without saying which
  /// message.
  static Result<ChatMessage> from_json(const nlohmann::ordered_json& object);

  [[nodiscard]] const std::string& role() const { return role_; }
  /// None: it is missing, null, or a list of parts.
  [[nodiscard]] const std::optional<std::string>& content() const { return content_; }
  /// All of it, as a JSON object on one line: name, tool_calls and other members too.
  [[nodiscard]] const std::string& json() const { return json_; }

 private:
  ChatMessage() = default;

  std::string role_;
  std::optional<std::string> content_;
  std::string json_;
};

/// What a template renders.
struct Conversation {
  std::vector<ChatMessage> messages = {};
  std::string tools = {};      ///< A JSON list of what the model may call; empty: not given.
  std::string variables = {};  ///< A JSON object of more that a template may ask for; empty: none.
};

/// The largest text of a conversation, and the most brackets open at once in it.
inline constexpr std::size_t conversation_limit_bytes = std::size_t{64} << 20U;
inline constexpr std::size_t conversation_limit_depth = 64;

/// `value` is a list of messages, or an object (a line of a data set) with such a list as its
/// member "messages" and perhaps "tools" (a list) and "chat_template_kwargs" (an object: the
/// variables); other members are left out. Errors (user): name the message, counted from 1, and
/// what is wrong with it.
[[nodiscard]] Result<Conversation> conversation_from_json(const nlohmann::ordered_json& value);

/// The same of a text. Errors (user): also what is not JSON, with its line; too long or too deep.
[[nodiscard]] Result<Conversation> parse_conversation(std::string_view text);

}  // namespace train::storage
