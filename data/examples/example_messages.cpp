#include "data/examples/example_messages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/ascii.hpp"
#include "base/text/one_line.hpp"
#include "data/chat/white_space.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

using ExampleJson = nlohmann::ordered_json;

/// Names of roles, and their names in chat templates.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kRoleNames = {
    {{"human", "user"},
     {"user", "user"},
     {"prompter", "user"},
     {"gpt", "assistant"},
     {"chatgpt", "assistant"},
     {"assistant", "assistant"},
     {"model", "assistant"},
     {"function_call", "function_call"},
     {"system", "system"},
     {"developer", "developer"},
     {"tool", "tool"},
     {"tool_response", "tool"},
     {"observation", "tool"},
     {"function_response", "tool"},
     {"function", "tool"},
     {"ipython", "ipython"}}};

/// Renames {from, value} to {role, content}, and roles to those of chat templates. An unknown role
/// stays, for the template to judge.
void rename_members(ExampleJson& message, std::vector<Remark>& remarks) {
  const bool share_gpt = !message.contains("role") && message.contains("from");
  ExampleJson renamed = ExampleJson::object();
  for (const auto& [key, value] : message.items()) {
    if (key == (share_gpt ? "from" : "role") && value.is_string()) {
      const auto& said = value.get_ref<const std::string&>();
      const MessageRole role = message_role(said);
      if (!role.known) {
        remarks.push_back({RemarkKind::unknown_role, said});
      }
      renamed["role"] = role.name;
    } else {
      renamed[share_gpt && key == "value" ? "content" : key] = value;
    }
  }
  message = std::move(renamed);
}

/// Function in the form of chat templates, for tool calls and tools.
ExampleJson of_function(const ExampleJson& function) {
  return {{"type", "function"}, {"function", function}};
}

/// Converts the member "function_call", the predecessor of "tool_calls", or a message of that role,
/// whose content is {"name", "arguments"}, or a list of these, as JSON text. False: there is none.
bool take_calls(ExampleJson& message) {
  if (const auto call = message.find("function_call"); call != message.end()) {
    if (!call->is_object() || message.contains("tool_calls")) {
      return false;
    }
    message["tool_calls"] = ExampleJson::array({of_function(*call)});
    message.erase("function_call");
  }
  if (message.value("role", ExampleJson()) != "function_call") {
    return true;
  }
  const auto content = message.find("content");
  if (content == message.end()) {
    return false;
  }
  ExampleJson said = content->is_string()
                         ? ExampleJson::parse(content->get<std::string>(), nullptr, false)
                         : *content;
  said = said.is_object() ? ExampleJson::array({said}) : said;
  ExampleJson calls = ExampleJson::array();
  for (const ExampleJson& call : said.is_array() ? said : ExampleJson::array()) {
    if (!call.is_object() || !call.contains("name") || !call.at("name").is_string()) {
      return false;
    }
    calls.push_back(of_function(call));
  }
  message["role"] = "assistant";
  message["content"] = nullptr;
  message["tool_calls"] = calls;
  return !calls.empty();
}

/// Joins text parts to one text, and reports their other members. False: a part is not text.
bool join_parts(ExampleJson& message, std::vector<Remark>& remarks) {
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
    for (const auto& [key, value] : part.items()) {
      if (part.is_object() && key != "type" && key != "text" && !value.is_null()) {
        remarks.push_back({RemarkKind::not_read, fmt::format("messages[].content[].{}", key)});
      }
    }
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

/// Weight of a message; a text: the error in it.
std::variant<float, std::string> take_weight(ExampleJson& message) {
  double weight = 1.0;
  bool trained = true;
  if (const auto found = message.find("weight"); found != message.end()) {
    weight = found->is_number() ? found->get<double>() : -1.0;
    if (!std::isfinite(weight) || weight < 0.0 || weight > 1e6) {
      return R"("weight" has to be a number >= 0)";
    }
    message.erase("weight");
  }
  for (const char* const key : {"train", "loss", "training"}) {
    if (const auto found = message.find(key); found != message.end()) {
      if (!found->is_boolean()) {
        return fmt::format(R"("{}" has to be true or false)", key);
      }
      trained = trained && found->get<bool>();
      message.erase(key);
    }
  }
  for (const char* const key : {"mask", "train_detail"}) {
    if (message.contains(key)) {
      return fmt::format(R"("{}" may mean that it is trained or that it is not; say "train": true )"
                         R"(or false)",
                         key);
    }
  }
  return static_cast<float>(trained ? weight : 0.0);
}

bool has_no_content(const ExampleJson& message) {
  const auto content = message.find("content");
  return content == message.end() || content->is_null();
}

bool says_nothing(const ExampleJson& message) {
  const auto content = message.find("content");
  const bool empty = content == message.end() || content->is_null() ||
                     (content->is_string() && is_blank(content->get_ref<const std::string&>()));
  return empty && !message.contains("tool_calls");
}

/// Reads and appends one message.
std::optional<Dropped> take_message(const ExampleJson& object, MessageList& list) {
  ExampleJson message = object;
  const std::string which = fmt::format("message {}", list.weights.size() + 1);
  if (!message.is_object()) {
    return Dropped{DropReason::message, which + " is no object"};
  }
  rename_members(message, list.remarks);
  erase_null(message);
  if (message.contains("role") && !message.at("role").is_string()) {
    return Dropped{DropReason::message, which + R"(: "role" is not text)"};
  }
  if (!take_calls(message)) {
    return Dropped{DropReason::message,
                   which + R"(: a function_call is no {"name": ..., "arguments": ...})"};
  }
  if (!join_parts(message, list.remarks)) {
    return Dropped{DropReason::image, which};
  }
  const auto role = message.value("role", ExampleJson());
  const bool assistant = role == "assistant";
  const bool counts = message.contains("weight") || message.contains("train") ||
                      message.contains("loss") || message.contains("training");
  const auto weight = take_weight(message);
  if (const auto* const wrong = std::get_if<std::string>(&weight)) {
    return Dropped{DropReason::message, fmt::format("{}: {}", which, *wrong)};
  }
  if (assistant && std::get<float>(weight) > 0.0F && says_nothing(message)) {
    return Dropped{DropReason::empty_answer, which};
  }
  if (has_no_content(message)) {
    if (role == "system") {
      return std::nullopt;
    }
    if (!message.contains("tool_calls")) {
      return Dropped{DropReason::message, fmt::format("{}: it has no content", which)};
    }
    message["content"] = nullptr;  // Whether the member exists depends on the file's format.
  }
  if (counts && std::get<float>(weight) > 0.0F && !assistant && role.is_string()) {
    list.remarks.push_back(
        {RemarkKind::not_read, fmt::format("weight of {}", role.get<std::string>())});
  }
  list.weights.push_back(assistant ? std::get<float>(weight) : 0.0F);
  list.messages.push_back(std::move(message));
  return std::nullopt;
}

/// True if a text begins like a list of objects printed by Python, never like JSON.
bool is_printed_list(const std::string& text) {
  std::string_view rest = trimmed(text);
  for (const char bracket : {'[', '{'}) {
    if (rest.starts_with(bracket)) {
      rest = trimmed(rest.substr(1));
    } else if (bracket == '{') {
      return false;
    }
  }
  return rest.starts_with('\'');
}

constexpr std::string_view kPrintedList =
    "a list as Python prints it, which is no JSON: write it with json.dumps(), or give Parquet";

/// List, or JSON text of one.
ExampleJson list_or_text(const ExampleJson& value) {
  if (!value.is_string()) {
    return value;
  }
  const auto& text = value.get_ref<const std::string&>();
  constexpr storage::JsonLimits limits = {.bytes = kConversationLimitBytes,
                                          .values = 10'000'000,
                                          .run = kConversationLimitBytes,
                                          .depth = kConversationLimitDepth};
  return storage::json_excess(text, limits).empty() ? ExampleJson::parse(text, nullptr, false)
                                                    : value;
}

}  // namespace

MessageRole message_role(std::string_view name) {
  const std::string lower = lower_case(std::string(name));
  const auto* const found = std::find_if(kRoleNames.begin(), kRoleNames.end(),
                                         [&](const auto& each) { return each.first == lower; });
  return found == kRoleNames.end() ? MessageRole{std::string(name), false}
                                   : MessageRole{std::string(found->second), true};
}

Dropped blame_role(Dropped dropped, const std::vector<Remark>& remarks) {
  const auto role = std::find_if(remarks.begin(), remarks.end(), [](const Remark& remark) {
    return remark.kind == RemarkKind::unknown_role;
  });
  const bool may_follow =
      dropped.reason == DropReason::nothing_trained || dropped.reason == DropReason::template_error;
  return may_follow && role != remarks.end()
             ? Dropped{DropReason::unknown_role,
                       fmt::format("\"{}\": {}", role->name, dropped.detail)}
             : dropped;
}

std::variant<MessageList, Dropped> message_list(const ExampleJson& list) {
  MessageList result;
  if (list.is_string() && is_printed_list(list.get_ref<const std::string&>())) {
    return Dropped{DropReason::members, fmt::format("the messages are {}", kPrintedList)};
  }
  ExampleJson messages = list_or_text(list);
  if (messages.is_object()) {
    messages = ExampleJson::array({messages});
  }
  if (!messages.is_array() || messages.empty()) {
    return Dropped{DropReason::members, "the messages are no list, or an empty one"};
  }
  for (const ExampleJson& each : messages) {
    if (auto dropped = take_message(each, result)) {
      return std::move(*dropped);
    }
  }
  if (result.messages.empty()) {
    return Dropped{DropReason::members, "none of the messages has a content"};
  }
  return result;
}

bool says_messages(const std::string& text) {
  if (!trimmed(text).starts_with('[')) {
    return false;
  }
  const ExampleJson list = list_or_text(text);
  return list.is_array() && !list.empty() &&
         std::all_of(list.begin(), list.end(), [](const ExampleJson& message) {
           return message.is_object() && (message.contains("role") || message.contains("from"));
         });
}

bool prints_messages(const std::string& text) {
  return is_printed_list(text) &&
         (text.find("'role':") != std::string::npos || text.find("'from':") != std::string::npos);
}

MessageList text_message(const char* role, const std::string& content) {
  const bool assistant = std::string_view(role) == "assistant";
  MessageList list;
  list.messages.push_back(ExampleJson{{"role", role}, {"content", content}});
  list.weights.push_back(assistant ? 1.0F : 0.0F);
  return list;
}

void append(MessageList& list, const MessageList& more) {
  list.messages.insert(list.messages.end(), more.messages.begin(), more.messages.end());
  list.weights.insert(list.weights.end(), more.weights.begin(), more.weights.end());
  list.remarks.insert(list.remarks.end(), more.remarks.begin(), more.remarks.end());
}

MessageList after_prompt(MessageList prompt, const MessageList& answer) {
  std::fill(prompt.weights.begin(), prompt.weights.end(), 0.0F);
  append(prompt, answer);
  return prompt;
}

namespace {

/// Roles of a conversation, each once.
std::string roles_of(const MessageList& list) {
  std::vector<std::string> roles;
  for (const ExampleJson& message : list.messages) {
    const auto role = message.value("role", ExampleJson());
    const std::string name = role.is_string() ? role.get<std::string>() : "none";
    if (std::find(roles.begin(), roles.end(), name) == roles.end()) {
      roles.push_back(name);
    }
  }
  return one_line(fmt::format("{}", fmt::join(roles, ", ")));
}

}  // namespace

std::variant<ExampleText, Dropped> conversation_text(const MessageList& list, LineMembers& line,
                                                     bool train_on_last) {
  ExampleJson whole = {{"messages", list.messages}};
  if (const ExampleJson* const tools = line.read("tools")) {
    if (tools->is_string() && is_printed_list(tools->get_ref<const std::string&>())) {
      return Dropped{DropReason::members, fmt::format(R"("tools" is {})", kPrintedList)};
    }
    if (!tools->empty() && *tools != "") {
      whole["tools"] = list_or_text(*tools);
    }
  } else if (const ExampleJson* const functions = line.read("functions")) {
    for (const ExampleJson& function : list_or_text(*functions)) {
      whole["tools"].push_back(of_function(function));
    }
  }
  if (const ExampleJson* const variables = line.read("chat_template_kwargs")) {
    whole["chat_template_kwargs"] = *variables;
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
    return blame_role(
        {DropReason::nothing_trained,
         fmt::format("no message of the assistant is trained; the roles there are {}, and the "
                     "assistant's is \"assistant\"",
                     roles_of(list))},
        list.remarks);
  }
  text.conversation = std::move(*conversation);
  return text;
}

}  // namespace train::data
