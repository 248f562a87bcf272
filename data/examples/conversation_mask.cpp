#include "data/examples/conversation_mask.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/check.hpp"
#include "base/text/one_line.hpp"
#include "data/chat/white_space.hpp"

namespace train::data {
namespace {

using MessageJson = nlohmann::ordered_json;

/// Ignores white space, which templates trim and insert.
bool has_text(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos ||
         without_white_space(text).find(without_white_space(part)) != std::string::npos;
}

std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

MessageJson json_of(const ChatMessage& message) { return MessageJson::parse(message.json()); }

bool has_calls(const ChatMessage& message) {
  return message.json().find("\"tool_calls\"") != std::string::npos;
}

/// Tool calls of a message: where names and arguments stand, as {"name": ..., "arguments": ...}.
std::vector<MessageJson*> calls_of(MessageJson& message) {
  std::vector<MessageJson*> calls;
  const auto list = message.find("tool_calls");
  if (list == message.end() || !list->is_array()) {
    return calls;
  }
  for (MessageJson& call : *list) {
    if (call.is_object()) {
      const auto function = call.find("function");
      calls.push_back(function != call.end() && function->is_object() ? &*function : &call);
    }
  }
  return calls;
}

const std::string* text_of(const MessageJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? &found->get_ref<const std::string&>()
                                                     : nullptr;
}

/// Renders a conversation, and works around template output for unsupported content.
class ConversationRender {
 public:
  ConversationRender(ChatTemplate& chat_template, Conversation& conversation)
      : template_(chat_template), conversation_(conversation) {}

  Result<RenderedChat> run() {
    auto chat = rendered();
    if (empties_nulls(chat)) {
      chat = rendered();
    }
    if (chat && parse_arguments(*chat)) {
      chat = rendered();
    }
    return chat;
  }

 private:
  Result<RenderedChat> rendered() {
    auto chat = template_.render_with_spans(conversation_);
    if (chat) {
      return chat;
    }
    // A generation block may have no known place: the text alone may suffice.
    auto text = TRAIN_TRY(template_.render(conversation_));
    return RenderedChat{.text = std::move(text), .generated = {}};
  }

  /// Gives messages without content an empty one if the template prints None for null or rejects
  /// it. False: nothing was changed.
  bool empties_nulls(const Result<RenderedChat>& chat) {
    const std::size_t nones = chat ? occurrences(chat->text, "None") : 1;
    ChatPrefix prefix{.messages_count = conversation_.messages.size()};
    for (std::size_t i = 0; nones > 0 && i < conversation_.messages.size(); ++i) {
      if (!conversation_.messages[i].content()) {
        prefix.contents.emplace(i, "");
      }
    }
    if (prefix.contents.empty()) {
      return false;
    }
    const auto empty =
        std::move(template_.render_prefixes(conversation_, std::span(&prefix, 1)).front());
    if (!empty || (chat && occurrences(empty->text, "None") >= nones)) {
      return false;
    }
    for (const auto& [index, content] : prefix.contents) {
      auto message = json_of(conversation_.messages[index]);
      message["content"] = content;
      replace(index, message);
    }
    return true;
  }

  /// Parses tool call arguments given as JSON text, if the template would escape them again.
  bool parse_arguments(const RenderedChat& chat) {
    bool any = false;
    for (std::size_t i = 0; i < conversation_.messages.size(); ++i) {
      if (!has_calls(conversation_.messages[i])) {
        continue;
      }
      auto message = json_of(conversation_.messages[i]);
      bool changed = false;
      for (MessageJson* const call : calls_of(message)) {
        const std::string* const text = text_of(*call, "arguments");
        if (text == nullptr ||
            chat.text.find(MessageJson(*text).dump(
                -1, ' ', false, MessageJson::error_handler_t::replace)) == std::string::npos) {
          continue;
        }
        auto value = MessageJson::parse(*text, nullptr, false);
        if (value.is_object()) {
          call->at("arguments") = std::move(value);
          changed = true;
        }
      }
      if (changed) {
        replace(i, message);
        any = true;
      }
    }
    return any;
  }

  void replace(std::size_t index, const MessageJson& message) {
    auto changed = ChatMessage::from_json(message);
    TRAIN_CHECK(changed.ok());
    conversation_.messages[index] = *std::move(changed);
  }

  ChatTemplate& template_;
  Conversation& conversation_;
};

/// Last non-blank line: text before it may be thoughts, which templates remove.
std::string_view last_line(std::string_view content) {
  const std::string_view text = trimmed(content);
  return text.substr(text.rfind('\n') + 1);
}

/// Position in a marked piece at which a content ends; nullopt: absent or ambiguous.
std::optional<std::size_t> end_of_content(std::string_view said, std::string_view content) {
  for (const std::string_view part : {trimmed(content), last_line(content)}) {
    const std::size_t at = said.find(part);
    if (!part.empty() && at != std::string_view::npos) {
      return said.find(part, at + 1) == std::string_view::npos ? std::optional(at + part.size())
                                                               : std::nullopt;
    }
  }
  return std::nullopt;
}

/// Answers marked by the template; nullopt: none are, or it is unclear to which messages they
/// belong.
std::optional<std::vector<AnswerSpan>> by_markers(const RenderedChat& chat,
                                                  const Conversation& conversation,
                                                  const std::vector<std::size_t>& answers,
                                                  std::span<const float> weights) {
  std::vector<AnswerSpan> spans;
  for (const TextSpan& span : chat.generated) {
    if (span.end_bytes > span.begin_bytes) {
      spans.push_back({.begin_bytes = span.begin_bytes, .end_bytes = span.end_bytes});
    }
  }
  const bool ordered =
      std::adjacent_find(spans.begin(), spans.end(), [](const auto& left, const auto& right) {
        return right.begin_bytes < left.end_bytes;
      }) == spans.end();
  const bool alike = std::all_of(answers.begin(), answers.end(), [&](std::size_t answer) {
    return weights[answer] == weights[answers.front()];
  });
  // Some templates mark one more span after the last answer: the end of the whole text. Others mark
  // thoughts and tool calls separately, which does not matter if all answers are trained.
  const bool each = spans.size() == answers.size() || spans.size() == answers.size() + 1;
  if (spans.empty() || !ordered || (!each && !alike)) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    AnswerSpan& span = spans[i];
    span.message = answers[std::min(i, answers.size() - 1)];
    const auto& content = conversation.messages[span.message].content();
    const std::string_view said =
        std::string_view(chat.text).substr(span.begin_bytes, span.end_bytes - span.begin_bytes);
    if (!alike && i < answers.size() && content && !has_text(said, *content)) {
      return std::nullopt;
    }
    if (const auto end = content ? end_of_content(said, *content) : std::nullopt) {
      span.said_end_bytes = span.begin_bytes + *end;
    }
  }
  return spans;
}

/// Compares the messages of a conversation with its text.
class LeftOut {
 public:
  LeftOut(ChatTemplate& chat_template, const Conversation& conversation,
          const MaskedConversation& masked)
      : template_(chat_template), conversation_(conversation), masked_(masked) {}

  /// A tool call that the template does not print, or an answer of which it prints nothing.
  [[nodiscard]] std::optional<Dropped> lost(std::span<const float> weights) const {
    for (std::size_t i = 0; i < conversation_.messages.size(); ++i) {
      const ChatMessage& message = conversation_.messages[i];
      const std::string said = said_by(i);
      if (weights[i] > 0.0F && message.content() &&
          !has_text(said, last_line(*message.content()))) {
        return Dropped{DropReason::no_mask,
                       fmt::format("message {}: the template omits its content", i + 1)};
      }
      if (!has_calls(message)) {
        continue;
      }
      auto object = json_of(message);
      for (const MessageJson* const call : calls_of(object)) {
        const std::string* const name = text_of(*call, "name");
        if (name == nullptr) {
          continue;
        }
        // A name that also occurs in the content may only stand there.
        const bool doubtful = message.content() && has_text(*message.content(), *name);
        if (!has_text(said, *name) || (doubtful && !writes_calls(i))) {
          return Dropped{DropReason::call_lost,
                         fmt::format("message {}: {}", i + 1, one_line(*name))};
        }
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    const auto add = [&](const std::string& name) {
      if (std::find(all.begin(), all.end(), name) == all.end()) {
        all.push_back(name);
      }
    };
    for (const ChatMessage& message : conversation_.messages) {
      if (message.content() && !has_text(masked_.text, *message.content())) {
        add(fmt::format("content of {}", message.role()));
      }
      if (const char* const lost =
              message.role() == "assistant" ? lost_thoughts(message) : nullptr) {
        add(lost);
      }
    }
    if (!has_tools()) {
      add("tools");
    }
    return all;
  }

 private:
  /// Text printed as the answer; with markers, as any answer; the whole text if the place is
  /// unknown.
  [[nodiscard]] std::string said_by(std::size_t message) const {
    std::string said;
    for (const AnswerSpan& span : masked_.answers) {
      if (span.message == message || masked_.method == MaskMethod::markers) {
        said += masked_.text.substr(span.begin_bytes, span.end_bytes - span.begin_bytes);
      }
    }
    return said.empty() ? masked_.text : said;
  }

  /// Name of a message's member that holds thoughts, if the template does not print them; otherwise
  /// null.
  [[nodiscard]] const char* lost_thoughts(const ChatMessage& message) const {
    for (const char* const key : {"reasoning_content", "thinking", "reasoning"}) {
      if (message.json().find(key) != std::string::npos) {
        const auto object = json_of(message);
        if (const std::string* const text = text_of(object, key)) {
          return has_text(masked_.text, *text) ? nullptr : key;
        }
      }
    }
    return nullptr;
  }

  /// True if renaming the functions in a message's tool calls changes the text.
  [[nodiscard]] bool writes_calls(std::size_t index) const {
    Conversation renamed = conversation_;
    auto object = json_of(conversation_.messages[index]);
    for (MessageJson* const call : calls_of(object)) {
      (*call)["name"] = "QxAnotherNameQx";
    }
    auto message = ChatMessage::from_json(object);
    TRAIN_CHECK(message.ok());
    renamed.messages[index] = *std::move(message);
    const auto text = template_.render(renamed);
    return !text || *text != masked_.text;
  }

  [[nodiscard]] bool has_tools() const {
    if (conversation_.tools.empty()) {
      return true;
    }
    const auto tools = MessageJson::parse(conversation_.tools);
    return std::all_of(tools.begin(), tools.end(), [&](const MessageJson& tool) {
      const auto function = tool.is_object() ? tool.find("function") : tool.end();
      const MessageJson& named =
          tool.is_object() && function != tool.end() && function->is_object() ? *function : tool;
      const std::string* const name = named.is_object() ? text_of(named, "name") : nullptr;
      return name == nullptr || has_text(masked_.text, *name);
    });
  }

  ChatTemplate& template_;
  const Conversation& conversation_;
  const MaskedConversation& masked_;
};

/// With markers, for all assistant messages; otherwise for the trained ones, and for tool calls,
/// which are searched in their places.
std::optional<Dropped> find_answers(ChatTemplate& chat_template, const Conversation& conversation,
                                    std::span<const float> weights, const RenderedChat& chat,
                                    MaskedConversation& masked) {
  std::vector<std::size_t> answers;
  std::vector<std::size_t> trained;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (conversation.messages[i].role() == "assistant") {
      answers.push_back(i);
    }
    if (weights[i] > 0.0F) {
      trained.push_back(i);
    }
  }
  if (auto spans = by_markers(chat, conversation, answers, weights)) {
    masked.answers = std::move(*spans);
    return std::nullopt;
  }
  masked.method = MaskMethod::placeholders;
  auto placed = place_answers(chat_template, conversation, masked.text, trained);
  if (auto* const dropped = std::get_if<Dropped>(&placed)) {
    return std::move(*dropped);
  }
  masked.answers = std::get<std::vector<AnswerSpan>>(std::move(placed));
  for (const std::size_t answer : answers) {
    if (weights[answer] > 0.0F || !has_calls(conversation.messages[answer])) {
      continue;
    }
    const auto call = place_answers(chat_template, conversation, masked.text, {&answer, 1});
    if (const auto* const spans = std::get_if<std::vector<AnswerSpan>>(&call)) {
      masked.answers.insert(masked.answers.end(), spans->begin(), spans->end());
    }
  }
  return std::nullopt;
}

}  // namespace

std::variant<MaskedConversation, Dropped> mask_conversation(ChatTemplate& chat_template,
                                                            Conversation conversation,
                                                            std::span<const float> weights) {
  auto chat = ConversationRender(chat_template, conversation).run();
  if (!chat) {
    return Dropped{DropReason::template_error, chat.error().message};
  }
  MaskedConversation masked;
  masked.text = chat->text;
  masked.not_read = chat->unasked;
  if (auto dropped = find_answers(chat_template, conversation, weights, *chat, masked)) {
    return std::move(*dropped);
  }
  const LeftOut left_out(chat_template, conversation, masked);
  if (auto lost = left_out.lost(weights)) {
    return std::move(*lost);
  }
  masked.left_out = left_out.names();
  return masked;
}

}  // namespace train::data
