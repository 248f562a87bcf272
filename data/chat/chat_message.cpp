#include "data/chat/chat_message.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/one_line.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

using Json = nlohmann::ordered_json;

std::string on_one_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string with_replacements(const std::string& text) {
  std::uint64_t ignored = 0;
  return storage::repaired_utf8(text, ignored);
}

const Json* member_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// The parser's message from the line on, without its own name and number.
std::string parse_reason(const std::string& message) {
  const std::size_t begin = message.find("line ");
  const std::string reason = begin == std::string::npos ? message : message.substr(begin);
  return one_line(reason.substr(0, reason.find("; last read")));
}

Result<std::vector<ChatMessage>> messages_of(const Json& list) {
  std::vector<ChatMessage> messages;
  for (const Json& object : list) {
    auto message = ChatMessage::from_json(object);
    if (!message) {
      return user_error(
          fmt::format("message {}: {}", messages.size() + 1, message.error().message));
    }
    messages.push_back(std::move(message).value());
  }
  return messages;
}

}  // namespace

ChatMessage::ChatMessage(const std::string& role, const std::string& content)
    : role_(with_replacements(role)),
      content_(with_replacements(content)),
      json_(on_one_line({{"role", role_}, {"content", *content_}})) {}

Result<ChatMessage> ChatMessage::from_json(const Json& object) {
  if (!object.is_object()) {
    return user_error(R"(not an object {"role": ..., "content": ...})");
  }
  ChatMessage message;
  const Json* const role = member_of(object, "role");
  if (role == nullptr || !role->is_string()) {
    return user_error(role == nullptr ? R"(it has no "role")" : R"("role" is not text)");
  }
  const Json* const content = member_of(object, "content");
  if (content != nullptr && !content->is_string() && !content->is_array()) {
    return user_error(R"("content" is neither a text, nor a list of parts, nor null)");
  }
  if (!object.contains("content") && !object.contains("tool_calls")) {
    return user_error(R"(it has no "content")");
  }
  message.role_ = role->get<std::string>();
  if (content != nullptr && content->is_string()) {
    message.content_ = content->get<std::string>();
  }
  message.json_ = on_one_line(object);
  return message;
}

Result<Conversation> conversation_from_json(const Json& value) {
  Conversation conversation;
  const Json* list = &value;
  if (value.is_object()) {
    list = member_of(value, "messages");
    if (const Json* const tools = member_of(value, "tools")) {
      if (!tools->is_array()) {
        return user_error(R"("tools" is not a list)");
      }
      conversation.tools = on_one_line(*tools);
    }
    if (const Json* const variables = member_of(value, "chat_template_kwargs")) {
      if (!variables->is_object()) {
        return user_error(R"("chat_template_kwargs" is not an object)");
      }
      conversation.variables = on_one_line(*variables);
    }
  }
  if (list == nullptr || !list->is_array()) {
    return user_error(
        R"(a conversation is a list [{"role": ..., "content": ...}, ...], or an object with such )"
        R"(a list "messages")");
  }
  conversation.messages = TRAIN_TRY(messages_of(*list));
  return conversation;
}

Result<Conversation> parse_conversation(std::string_view text) {
  constexpr storage::JsonLimits limits = {.bytes = kConversationLimitBytes,
                                          .values = 10'000'000,
                                          .run = kConversationLimitBytes,
                                          .depth = kConversationLimitDepth};
  if (const std::string excess = storage::json_excess(text, limits); !excess.empty()) {
    return user_error(fmt::format("the conversation is {}", excess));
  }
  try {
    return conversation_from_json(Json::parse(text));
  } catch (const Json::exception& error) {
    return user_error(fmt::format("the conversation is not JSON: {}", parse_reason(error.what())));
  }
}

}  // namespace train::data
