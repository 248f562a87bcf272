#include "data/chat/built_in_templates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "data/chat/white_space.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

/// Growing text with the spans that the model writes.
class ChatText {
 public:
  void add(std::string_view piece) {
    chat_.text += piece;
    characters_ += static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
    }));
  }
  /// `generated`: written by the model.
  void add(std::string_view piece, bool generated) {
    TextSpan span{.begin_bytes = chat_.text.size(), .begin_characters = characters_};
    add(piece);
    if (generated) {
      span.end_bytes = chat_.text.size();
      span.end_characters = characters_;
      chat_.generated.push_back(span);
    }
  }
  [[nodiscard]] RenderedChat take() { return std::move(chat_); }

 private:
  RenderedChat chat_;
  std::size_t characters_ = 0;
};

std::string_view token(const SpecialTokens& tokens, std::string_view name) {
  const auto found = tokens.find(name);
  return found == tokens.end() ? std::string_view() : found->second;
}

/// Checks that roles are common to all families. Errors: another role, or content that is not text.
Status check_turns(std::span<const ChatMessage> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (!message.content()) {
      return user_error(
          fmt::format("message {}: its content is not text; use the model's own template", i + 1));
    }
    const std::string& role = message.role();
    if (role != "system" && role != "user" && role != "assistant") {
      return user_error(fmt::format(
          "message {}: the role is {}, not system, user or assistant; use the model's own template",
          i + 1, storage::shown(role)));
    }
  }
  return {};
}

Result<RenderedChat> render_chatml(std::span<const ChatMessage> messages,
                                   bool add_generation_prompt, const SpecialTokens&) {
  ChatText text;
  for (const ChatMessage& message : messages) {
    text.add(fmt::format("<|im_start|>{}\n", message.role()));
    text.add(*message.content() + "<|im_end|>", message.role() == "assistant");
    text.add("\n");
  }
  text.add(add_generation_prompt ? "<|im_start|>assistant\n" : "");
  return text.take();
}

Result<RenderedChat> render_llama3(std::span<const ChatMessage> messages,
                                   bool add_generation_prompt, const SpecialTokens& tokens) {
  ChatText text;
  text.add(messages.empty() ? "" : token(tokens, "bos_token"));
  for (const ChatMessage& message : messages) {
    text.add(fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", message.role()));
    text.add(fmt::format("{}<|eot_id|>", trimmed(*message.content())),
             message.role() == "assistant");
  }
  text.add(add_generation_prompt ? "<|start_header_id|>assistant<|end_header_id|>\n\n" : "");
  return text.take();
}

/// Puts the system message before the first user message.
Result<RenderedChat> render_gemma(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                  const SpecialTokens& tokens) {
  ChatText text;
  text.add(token(tokens, "bos_token"));
  std::string before;
  if (!messages.empty() && messages.front().role() == "system") {
    before = *messages.front().content() + "\n\n";
    messages = messages.subspan(1);
  }
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool user = messages[i].role() == "user";
    if (user != (i % 2 == 0)) {
      return user_error("Conversation roles must alternate user/assistant/user/assistant/...");
    }
    const bool model = messages[i].role() == "assistant";
    text.add(fmt::format("<start_of_turn>{}\n{}", model ? "model" : messages[i].role(),
                         i == 0 ? before : ""));
    text.add(fmt::format("{}<end_of_turn>", trimmed(*messages[i].content())), model);
    text.add("\n");
  }
  text.add(add_generation_prompt ? "<start_of_turn>model\n" : "");
  return text.take();
}

Result<RenderedChat> render_tulu(std::span<const ChatMessage> messages, bool add_generation_prompt,
                                 const SpecialTokens& tokens) {
  ChatText text;
  for (const ChatMessage& message : messages) {
    const bool assistant = message.role() == "assistant";
    text.add(fmt::format("<|{}|>\n", message.role()));
    text.add(fmt::format("{}{}", *message.content(), assistant ? token(tokens, "eos_token") : ""),
             assistant);
    text.add(assistant && &message == &messages.back() ? "" : "\n");
  }
  text.add(add_generation_prompt && !messages.empty() ? "<|assistant|>\n" : "");
  return text.take();
}

/// Concatenates the contents without separators.
Result<RenderedChat> render_plain(std::span<const ChatMessage> messages, bool,
                                  const SpecialTokens&) {
  ChatText text;
  for (const ChatMessage& message : messages) {
    text.add(*message.content(), message.role() == "assistant");
  }
  return text.take();
}

using RenderTurns = Result<RenderedChat> (*)(std::span<const ChatMessage>, bool,
                                             const SpecialTokens&);

template <RenderTurns render>
Result<RenderedChat> checked(std::span<const ChatMessage> messages, bool add_generation_prompt,
                             const SpecialTokens& tokens) {
  TRAIN_RETURN_IF_ERROR(check_turns(messages));
  return render(messages, add_generation_prompt, tokens);
}

constexpr const char* kChatmlSource =
    R"({%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

constexpr const char* kGemmaSource =
    R"({{- '<bos>' }}
{%- set turns = messages %}
{%- set before = '' %}
{%- if messages and messages[0].role == 'system' %}
    {%- set turns = messages[1:] %}
    {%- set before = messages[0].content + '\n\n' %}
{%- endif %}
{%- for message in turns %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate '
                            ~ 'user/assistant/user/assistant/...') }}
    {%- endif %}
    {{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
    {{- (before if loop.first else '') + (message.content | trim) + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %})";

constexpr const char* kLlama3Source =
    R"({%- for message in messages %}
    {{- '<|begin_of_text|>' if loop.first else '' }}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {{- (message.content | trim) + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

constexpr const char* kPlainSource =
    R"({%- for message in messages %}
    {{- message.content }}
{%- endfor %})";

constexpr const char* kTuluSource =
    R"({%- for message in messages %}
    {{- '<|' + message.role + '|>\n' + message.content }}
    {{- '<|end_of_text|>' if message.role == 'assistant' else '' }}
    {{- '\n' if message.role != 'assistant' or not loop.last else '' }}
{%- endfor %}
{%- if add_generation_prompt and messages %}
    {{- '<|assistant|>\n' }}
{%- endif %})";

}  // namespace

std::span<const BuiltInTemplate> built_in_templates() {
  static const std::array<BuiltInTemplate, 5> templates = {
      {{"chatml", {{"eos_token", "<|im_end|>"}}, checked<render_chatml>, kChatmlSource},
       {"gemma",
        {{"bos_token", "<bos>"}, {"eos_token", "<end_of_turn>"}},
        checked<render_gemma>,
        kGemmaSource},
       {"llama3",
        {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|eot_id|>"}},
        checked<render_llama3>,
        kLlama3Source},
       {"plain", {}, checked<render_plain>, kPlainSource},
       {"tulu", {{"eos_token", "<|end_of_text|>"}}, checked<render_tulu>, kTuluSource}}};
  return templates;
}

}  // namespace train::data
