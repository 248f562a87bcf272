#include "storage/examples/example.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "storage/examples/example_messages.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/tokenizer/text/utf8.hpp"

namespace train::storage {
namespace {

using LineJson = nlohmann::ordered_json;
using TextOrDropped = std::variant<ExampleText, Dropped>;

constexpr std::array<std::string_view, 5> kind_names = {"chat", "prompt", "preference", "kto",
                                                        "text"};

constexpr std::array<std::string_view, drop_reason_count> reason_texts = {
    "a line of more than 32 MiB",
    "not a JSON object",
    "members missing or of another type",
    "a message that is none",
    "content that is no text",
    "a label that is neither true nor false",
    "an empty answer",
    "a pair of equal answers",
    "nothing that is trained",
    "the template refuses it",
    "answers whose place in the text is not known",
    "a call that the template does not write; take another --template, one that knows tools",
    "all that is trained lies behind the row's end",
    "the tokenizer refuses it"};

bool has(const LineJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && !found->is_null();
}

/// TRL's name of the label, or open-instruct's; null: neither is there.
const LineJson* label_member(const LineJson& line) {
  for (const char* const key : {"label", "binary_labels"}) {
    if (has(line, key)) {
      return &line.at(key);
    }
  }
  return nullptr;
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

/// The member as a text; null: it is none.
const std::string* text_member(const LineJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? &found->get_ref<const std::string&>()
                                                   : nullptr;
}

Dropped missing(const char* what) { return {DropReason::members, what}; }

/// Parses one line.
class LineParser {
 public:
  LineParser(const LineJson& line, const ExampleOptions& options)
      : line_(line), options_(options) {}

  std::variant<Example, Dropped> run() {
    Example example;
    example.kind = options_.kind;
    if (!options_.source_key.empty()) {
      const std::string* const source = text_member(line_, options_.source_key.c_str());
      if (source == nullptr) {
        return Dropped{DropReason::members, fmt::format("\"{}\" is no text", options_.source_key)};
      }
      example.source = *source;
    }
    std::optional<Dropped> dropped;
    switch (options_.kind) {
      case ExampleKind::chat:
        dropped = take(chat(), example.text);
        break;
      case ExampleKind::prompt:
        dropped = take(completed("completion"), example.text);
        break;
      case ExampleKind::kto:
        dropped = labelled(example);
        break;
      case ExampleKind::preference:
        dropped = preference(example);
        break;
      case ExampleKind::text:
        dropped = plain(example);
        break;
    }
    if (dropped) {
      return *dropped;
    }
    return example;
  }

 private:
  static std::optional<Dropped> take(TextOrDropped from, ExampleText& to) {
    if (auto* const dropped = std::get_if<Dropped>(&from)) {
      return *dropped;
    }
    to = std::get<ExampleText>(std::move(from));
    return std::nullopt;
  }

  [[nodiscard]] TextOrDropped rendered(const MessageList& list) const {
    return conversation_text(list, line_, options_.train_on_last);
  }

  [[nodiscard]] TextOrDropped chat() const {
    for (const char* const key : {"messages", "conversations", "conversation"}) {
      if (has(line_, key)) {
        auto list = message_list(line_.at(key));
        if (auto* const dropped = std::get_if<Dropped>(&list)) {
          return *dropped;
        }
        auto& messages = std::get<MessageList>(list);
        prepend_system(messages);
        return rendered(messages);
      }
    }
    return alpaca();
  }

  /// ShareGPT's "system" beside the list.
  void prepend_system(MessageList& list) const {
    const std::string* const system = text_member(line_, "system");
    if (system != nullptr && !system->empty() &&
        list.messages.front().value("role", "") != "system") {
      const LineJson message = {{"role", "system"}, {"content", *system}};
      list.messages.insert(list.messages.begin(), message);
      list.weights.insert(list.weights.begin(), 0.0F);
    }
  }

  [[nodiscard]] TextOrDropped alpaca() const {
    const std::string* const instruction = text_member(line_, "instruction");
    const std::string* const output = text_member(line_, "output");
    const std::string* const input = text_member(line_, "input");
    if (instruction == nullptr || output == nullptr) {
      return missing(R"(no "messages" (nor "conversations", nor "instruction" and "output"))");
    }
    const std::string said =
        input == nullptr || input->empty() ? *instruction : *instruction + "\n\n" + *input;
    auto list = message_list(
        {{{"role", "user"}, {"content", said}}, {{"role", "assistant"}, {"content", *output}}});
    if (auto* const dropped = std::get_if<Dropped>(&list)) {
      return *dropped;
    }
    auto& messages = std::get<MessageList>(list);
    prepend_system(messages);
    return rendered(messages);
  }

  /// The prompt, and an answer to it: both texts, or both lists.
  [[nodiscard]] TextOrDropped completed(const char* answer_key) const {
    if (!has(line_, "prompt") || !has(line_, answer_key)) {
      return Dropped{DropReason::members, fmt::format("no \"prompt\" or no \"{}\"", answer_key)};
    }
    const std::string* const prompt = text_member(line_, "prompt");
    const std::string* const answer = text_member(line_, answer_key);
    if (prompt != nullptr && answer != nullptr) {
      return raw(*prompt, *answer);
    }
    auto before = message_list(line_.at("prompt"));
    auto after = message_list(line_.at(answer_key));
    for (const auto* const list : {&before, &after}) {
      if (const auto* const dropped = std::get_if<Dropped>(list)) {
        return *dropped;
      }
    }
    return rendered(
        after_prompt(std::get<MessageList>(std::move(before)), std::get<MessageList>(after)));
  }

  static TextOrDropped raw(const std::string& prompt, const std::string& answer) {
    if (is_blank(answer)) {
      return Dropped{DropReason::empty_answer, {}};
    }
    return ExampleText{.prompt = prompt, .answer = answer};
  }

  std::optional<Dropped> labelled(Example& example) const {
    const LineJson* const label = label_member(line_);
    const bool number = label != nullptr && label->is_number_integer();
    if (label == nullptr || !(label->is_boolean() || (number && (*label == 0 || *label == 1)))) {
      return Dropped{DropReason::label, label == nullptr ? R"(no "label")" : std::string()};
    }
    example.desirable = number ? *label == 1 : label->get<bool>();
    return take(has(line_, "messages") ? last_answer() : completed("completion"), example.text);
  }

  /// A conversation of which the last message is what the label is about.
  [[nodiscard]] TextOrDropped last_answer() const {
    auto list = message_list(line_.at("messages"));
    if (auto* const dropped = std::get_if<Dropped>(&list)) {
      return *dropped;
    }
    auto& messages = std::get<MessageList>(list);
    prepend_system(messages);
    return conversation_text(messages, line_, /*train_on_last=*/true);
  }

  std::optional<Dropped> preference(Example& example) const {
    if (!has(line_, "chosen") || !has(line_, "rejected")) {
      return missing(R"(no "chosen" or no "rejected")");
    }
    ExampleText worse;
    const bool texts = text_member(line_, "chosen") != nullptr;
    const bool prompted = has(line_, "prompt") && line_.at("prompt").is_string() == texts;
    std::optional<Dropped> dropped;
    if (prompted) {
      dropped = take(completed("chosen"), example.text);
      dropped = dropped ? dropped : take(completed("rejected"), worse);
    } else if (texts) {
      dropped = split_texts(example.text, worse);
    } else {
      dropped = split_messages(example.text, worse);
    }
    example.worse = std::move(worse);
    return dropped;
  }

  /// The prompt is what both texts begin with, without a space at its end.
  std::optional<Dropped> split_texts(ExampleText& better, ExampleText& worse) const {
    const std::string* const chosen = text_member(line_, "chosen");
    const std::string* const rejected = text_member(line_, "rejected");
    if (rejected == nullptr) {
      return missing(R"("chosen" is a text and "rejected" is none)");
    }
    const auto [left, right] =
        std::mismatch(chosen->begin(), chosen->end(), rejected->begin(), rejected->end());
    auto shared = static_cast<std::size_t>(left - chosen->begin());
    while (shared > 0 && shared < chosen->size() && continues((*chosen)[shared])) {
      --shared;
    }
    shared -= shared > 0 && (*chosen)[shared - 1] == ' ' ? 1 : 0;
    if (left == chosen->end() && right == rejected->end()) {
      return Dropped{DropReason::equal_pair, {}};
    }
    auto dropped = take(raw(chosen->substr(0, shared), chosen->substr(shared)), better);
    return dropped ? dropped
                   : take(raw(rejected->substr(0, shared), rejected->substr(shared)), worse);
  }

  /// The prompt is the messages that both lists begin with.
  std::optional<Dropped> split_messages(ExampleText& better, ExampleText& worse) const {
    auto chosen = message_list(line_.at("chosen"));
    auto rejected = message_list(line_.at("rejected"));
    for (const auto* const list : {&chosen, &rejected}) {
      if (const auto* const dropped = std::get_if<Dropped>(list)) {
        return *dropped;
      }
    }
    auto& left = std::get<MessageList>(chosen);
    auto& right = std::get<MessageList>(rejected);
    if (left.messages == right.messages) {
      return Dropped{DropReason::equal_pair, {}};
    }
    for (std::size_t i = 0; i < std::min(left.weights.size(), right.weights.size()) &&
                            left.messages[i] == right.messages[i];
         ++i) {
      left.weights[i] = right.weights[i] = 0.0F;
    }
    auto dropped = take(rendered(left), better);
    return dropped ? dropped : take(rendered(right), worse);
  }

  std::optional<Dropped> plain(Example& example) const {
    const std::string* const text = text_member(line_, "text");
    if (text == nullptr) {
      return missing(R"(no "text")");
    }
    if (text->empty()) {
      return Dropped{DropReason::empty_answer, {}};
    }
    example.text.answer = *text;
    return std::nullopt;
  }

  const LineJson& line_;
  const ExampleOptions& options_;
};

}  // namespace

Result<ExampleKind> example_kind_named(std::string_view name) {
  const auto* const found = std::find(kind_names.begin(), kind_names.end(), name);
  if (found == kind_names.end()) {
    return user_error(fmt::format("there is no kind of data \"{}\"; take one of {}", name,
                                  fmt::join(kind_names, ", ")));
  }
  return static_cast<ExampleKind>(found - kind_names.begin());
}

std::string_view example_kind_name(ExampleKind kind) {
  return kind_names.at(static_cast<std::size_t>(kind));
}

std::optional<ExampleKind> example_kind_of(const LineJson& line) {
  if (!line.is_object()) {
    return std::nullopt;
  }
  if (has(line, "chosen") && has(line, "rejected")) {
    return ExampleKind::preference;
  }
  const LineJson* const label = label_member(line);
  if (has(line, "prompt") && has(line, "completion")) {
    return label != nullptr ? ExampleKind::kto : ExampleKind::prompt;
  }
  // A number beside a conversation may be anything, as the class of a text is.
  if (has(line, "messages") && label != nullptr && label->is_boolean()) {
    return ExampleKind::kto;
  }
  if (has(line, "messages") || has(line, "conversations") || has(line, "conversation") ||
      (has(line, "instruction") && has(line, "output"))) {
    return ExampleKind::chat;
  }
  return has(line, "text") ? std::optional(ExampleKind::text) : std::nullopt;
}

std::string_view example_kinds_help() {
  return R"("messages", "conversations", "instruction" and "output", "prompt" and "completion" )"
         R"((and "label"), "messages" and "label", "chosen" and "rejected", or "text")";
}

std::string_view drop_reason_text(DropReason reason) {
  return reason_texts.at(static_cast<std::size_t>(reason));
}

std::variant<Example, Dropped> parse_example(std::string_view line, const ExampleOptions& options) {
  constexpr JsonLimits limits = {.bytes = conversation_limit_bytes,
                                 .values = 10'000'000,
                                 .run = conversation_limit_bytes,
                                 .depth = conversation_limit_depth};
  if (const std::string excess = json_excess(line, limits); !excess.empty()) {
    return Dropped{DropReason::not_json, excess};
  }
  const LineJson json = LineJson::parse(line, nullptr, false);
  if (!json.is_object()) {
    return Dropped{DropReason::not_json, {}};
  }
  return LineParser(json, options).run();
}

}  // namespace train::storage
