#include "storage/examples/conversation_mask.hpp"

#include <fmt/format.h>
#include <algorithm>

#include <optional>
#include <string_view>
#include <utility>

namespace train::storage {
namespace {

std::vector<std::size_t> answers_of(const Conversation& conversation) {
  std::vector<std::size_t> answers;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (conversation.messages[i].role() == "assistant") {
      answers.push_back(i);
    }
  }
  return answers;
}

/// What the template says itself, if it does of each answer.
std::optional<std::vector<AnswerSpan>> by_markers(const RenderedChat& chat,
                                                  const std::vector<std::size_t>& answers) {
  // Some templates mark one thing more behind the last answer: the end of the whole text.
  const std::size_t marked = chat.generated.size();
  if (answers.empty() || (marked != answers.size() && marked != answers.size() + 1)) {
    return std::nullopt;
  }
  std::vector<AnswerSpan> spans;
  std::size_t end = 0;
  for (std::size_t i = 0; i < marked; ++i) {
    const TextSpan& span = chat.generated[i];
    if (span.begin_bytes < end || span.end_bytes <= span.begin_bytes) {
      return std::nullopt;
    }
    end = span.end_bytes;
    spans.push_back({span.begin_bytes, span.end_bytes, answers[std::min(i, answers.size() - 1)]});
  }
  return spans;
}

/// An answer begins where the text before it ends, rendered with what asks for an answer, and ends
/// where the text with it ends: if both are beginnings of the whole.
std::optional<std::vector<AnswerSpan>> by_prefixes(ChatTemplate& chat_template,
                                                   const Conversation& conversation,
                                                   std::string_view whole,
                                                   const std::vector<std::size_t>& answers) {
  std::vector<ChatPrefix> prefixes;
  for (const std::size_t answer : answers) {
    prefixes.push_back({.messages_count = answer, .options = {.add_generation_prompt = true}});
    prefixes.push_back({.messages_count = answer + 1});
  }
  const auto rendered = chat_template.render_prefixes(conversation, prefixes);
  std::vector<AnswerSpan> spans;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& before = rendered[2 * i];
    const auto& with = rendered[2 * i + 1];
    if (!before || !with || !whole.starts_with(before->text) || !whole.starts_with(with->text) ||
        before->text.size() >= with->text.size()) {
      return std::nullopt;
    }
    spans.push_back({before->text.size(), with->text.size(), answers[i]});
  }
  return spans;
}

std::string_view without_space(std::string_view text) {
  constexpr std::string_view space = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(space);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

/// Where the contents of all messages stand, one after the other; the answers' of those.
std::optional<std::vector<AnswerSpan>> by_contents(const Conversation& conversation,
                                                   std::string_view whole) {
  std::vector<AnswerSpan> spans;
  std::size_t from = 0;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    const std::string_view content =
        message.content() ? without_space(*message.content()) : std::string_view();
    const bool answer = message.role() == "assistant";
    const std::size_t found = content.empty() ? std::string_view::npos : whole.find(content, from);
    if (found == std::string_view::npos) {
      if (answer) {
        return std::nullopt;
      }
      continue;  // A template may leave out what others say, or write it in another way.
    }
    from = found + content.size();
    if (answer) {
      spans.push_back({found, from, i});
    }
  }
  return spans;
}

}  // namespace

std::variant<MaskedConversation, Dropped> mask_conversation(ChatTemplate& chat_template,
                                                            const Conversation& conversation) {
  const std::vector<std::size_t> answers = answers_of(conversation);
  auto chat = chat_template.render_with_spans(conversation);
  if (!chat) {
    // Perhaps a block whose place is not known: the text alone may do.
    auto text = chat_template.render(conversation);
    if (!text) {
      return Dropped{DropReason::template_error, text.error().message};
    }
    chat = RenderedChat{.text = std::move(*text), .generated = {}};
  }
  MaskedConversation masked;
  masked.text = std::move(chat->text);
  if (auto spans = by_markers(*chat, answers)) {
    masked.answers = std::move(*spans);
    return masked;
  }
  masked.method = MaskMethod::prefixes;
  if (auto spans = by_prefixes(chat_template, conversation, masked.text, answers)) {
    masked.answers = std::move(*spans);
    return masked;
  }
  masked.method = MaskMethod::located;
  if (auto spans = by_contents(conversation, masked.text)) {
    masked.answers = std::move(*spans);
    return masked;
  }
  return Dropped{DropReason::no_mask, chat_template.where()};
}

}  // namespace train::storage
