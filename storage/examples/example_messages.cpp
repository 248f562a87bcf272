#include "storage/examples/example_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "storage/files/untrusted_text.hpp"

namespace train::storage {
namespace {

using ExampleJson = nlohmann::ordered_json;

/// Roles of ShareGPT by the names of chat templates.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> share_gpt_roles = {
    {{"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"chatgpt", "assistant"},
     {"assistant", "assistant"},
     {"model", "assistant"},
     {"system", "system"},
     {"tool", "tool"},
     {"function_response", "tool"}}};

/// {from, value} becomes {role, content}. An unknown role stays, for the template to judge.
void rename_share_gpt(ExampleJson& message) {
  if (message.contains("role") || !message.contains("from")) {
    return;
  }
  ExampleJson renamed;
  for (const auto& [key, value] : message.items()) {
    if (key == "from" && value.is_string()) {
      const auto& said = value.get_ref<const std::string&>();
      const auto* const found = std::find_if(share_gpt_roles.begin(), share_gpt_roles.end(),
                                             [&](const auto& each) { return each.first == said; });
      renamed["role"] = found == share_gpt_roles.end() ? said : std::string(found->second);
    } else {
      renamed[key == "value" ? "content" : key] = value;
    }
  }
  message = std::move(renamed);
}

/// Parts of text become one text. False: one of them is no text.
bool join_parts(ExampleJson& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) {
    return true;
  }
  std::string joined;
  for (const ExampleJson& part : *content) {
    const bool text = part.is_object() && part.value("type", ExampleJson("text")) == "text" &&
                      part.contains("text") && part.at("text").is_string();
    if (!text && !part.is_string()) {
      return false;
    }
    joined += part.is_string() ? part.get<std::string>() : part.at("text").get<std::string>();
  }
  *content = joined;
  return true;
}

void erase_null(ExampleJson& message) {
  for (auto member = message.begin(); member != message.end();) {
    if (member->is_null() && member.key() != "content") {
      member = message.erase(member);
    } else {
      ++member;
    }
  }
}

/// What a message says of its weight; negative: what it says is no weight.
float take_weight(ExampleJson& message) {
  double weight = 1.0;
  if (const auto found = message.find("weight"); found != message.end()) {
    weight = found->is_number() ? found->get<double>() : -1.0;
    message.erase(found);
  }
  if (const auto found = message.find("train"); found != message.end()) {
    weight = !found->is_boolean() ? -1.0 : found->get<bool>() ? weight : 0.0;
    message.erase(found);
  }
  return std::isfinite(weight) && weight <= 1e6 ? static_cast<float>(weight) : -1.0F;
}

bool says_nothing(const ExampleJson& message) {
  const auto content = message.find("content");
  const bool empty =
      content == message.end() || content->is_null() ||
      (content->is_string() &&
       content->get_ref<const std::string&>().find_first_not_of(" \t\r\n") == std::string::npos);
  return empty && !message.contains("tool_calls") && !message.contains("function_call");
}

}  // namespace

std::variant<MessageList, Dropped> message_list(const ExampleJson& list) {
  MessageList result;
  if (!list.is_array() || list.empty()) {
    return Dropped{DropReason::members, "the messages are no list, or an empty one"};
  }
  for (const ExampleJson& each : list) {
    ExampleJson message = each;
    const std::string which = fmt::format("message {}", result.weights.size() + 1);
    if (!message.is_object()) {
      return Dropped{DropReason::message, which + " is no object"};
    }
    rename_share_gpt(message);
    erase_null(message);
    if (!join_parts(message)) {
      return Dropped{DropReason::image, which};
    }
    const float weight = take_weight(message);
    if (weight < 0.0F) {
      return Dropped{DropReason::message,
                     which + R"(: "weight" has to be a number >= 0, "train" true or false)"};
    }
    const bool assistant = message.value("role", ExampleJson()) == "assistant";
    if (assistant && weight > 0.0F && says_nothing(message)) {
      return Dropped{DropReason::empty_answer, which};
    }
    result.weights.push_back(assistant ? weight : 0.0F);
    result.messages.push_back(std::move(message));
  }
  return result;
}

MessageList after_prompt(MessageList prompt, const MessageList& answer) {
  std::fill(prompt.weights.begin(), prompt.weights.end(), 0.0F);
  prompt.messages.insert(prompt.messages.end(), answer.messages.begin(), answer.messages.end());
  prompt.weights.insert(prompt.weights.end(), answer.weights.begin(), answer.weights.end());
  return prompt;
}

std::variant<ExampleText, Dropped> conversation_text(const MessageList& list,
                                                     const ExampleJson& line, bool train_on_last) {
  ExampleJson whole = {{"messages", list.messages}};
  for (const char* key : {"tools", "chat_template_kwargs"}) {
    if (line.is_object() && line.contains(key)) {
      whole[key] = line.at(key);
    }
  }
  auto conversation = conversation_from_json(whole);
  if (!conversation) {
    return Dropped{DropReason::message, conversation.error().message};
  }
  ExampleText text;
  text.message_weights = list.weights;
  if (train_on_last) {
    const auto last = std::find_if(text.message_weights.rbegin(), text.message_weights.rend(),
                                   [](float weight) { return weight > 0.0F; });
    std::fill(last == text.message_weights.rend() ? last : last + 1, text.message_weights.rend(),
              0.0F);
  }
  if (std::none_of(text.message_weights.begin(), text.message_weights.end(),
                   [](float weight) { return weight > 0.0F; })) {
    return Dropped{DropReason::nothing_trained, "no message of the assistant is trained"};
  }
  text.conversation = std::move(*conversation);
  return text;
}

}  // namespace train::storage
