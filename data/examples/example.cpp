#include "data/examples/example.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/text/ascii.hpp"
#include "data/chat/white_space.hpp"
#include "data/examples/example_messages.hpp"
#include "data/examples/line_members.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

using LineJson = nlohmann::ordered_json;
using TextOrDropped = std::variant<ExampleText, Dropped>;

constexpr std::array<std::string_view, 5> kKindNames = {"chat", "prompt", "preference", "kto",
                                                        "text"};

const std::array<std::string_view, kDropReasonCount> kReasonTexts = {
    storage::line_fault_text(storage::LineFault::too_long),
    storage::line_fault_text(storage::LineFault::cut_off),
    storage::line_fault_text(storage::LineFault::half_surrogate),
    storage::line_fault_text(storage::LineFault::no_number),
    storage::line_fault_text(storage::LineFault::huge_number),
    storage::line_fault_text(storage::LineFault::bad_byte),
    storage::line_fault_text(storage::LineFault::control),
    storage::line_fault_text(storage::LineFault::fields),
    storage::line_fault_text(storage::LineFault::open_quote),
    "not a JSON object",
    "members missing or of another type",
    "a message that is none",
    "content that is no text",
    "a label that is neither true nor false",
    "an empty answer",
    "a pair of equal answers",
    "a pair whose prompt is not known",
    "nothing that is trained",
    "the template refuses it",
    "answers whose place in the text is not known",
    "a call that the template does not write; take another --template, one that knows tools",
    "all that is trained lies behind the row's end",
    "the tokenizer refuses it",
    "an unknown role"};

bool has(const LineJson& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && !found->is_null();
}

/// Names of the label in TRL, open-instruct and LLaMA-Factory.
constexpr std::array<const char*, 3> kLabelNames = {"label", "binary_labels", "kto_tag"};

/// Null if there is none.
const LineJson* label_member(const LineJson& line) {
  for (const char* const key : kLabelNames) {
    if (has(line, key)) {
      return &line.at(key);
    }
  }
  return nullptr;
}

/// Value of a label: true or false, 1 or 0, or their text in tables.
std::optional<bool> label_value(const LineJson& label) {
  if (label.is_boolean()) {
    return label.get<bool>();
  }
  if (label.is_string()) {
    const std::string text = lower_case(label.get<std::string>());
    return text == "true" || text == "1"    ? std::optional(true)
           : text == "false" || text == "0" ? std::optional(false)
                                            : std::nullopt;
  }
  return label.is_number() && (label == 0 || label == 1) ? std::optional(label == 1) : std::nullopt;
}

constexpr std::array<const char*, 3> kMessageNames = {"messages", "conversations", "conversation"};

/// Members that hold parts of the prompt in other programs' data sets.
constexpr std::array<std::string_view, 12> kPromptNames = {
    "messages", "conversations", "conversation", "prompt",  "instruction", "question",
    "input",    "query",         "context",      "history", "system",      "system_prompt"};

/// True if all texts of a value, except roles, occur in `words`.
bool stands_in(const LineJson& value, const std::string& words) {
  if (value.is_string()) {
    return words.find(trimmed(value.get_ref<const std::string&>())) != std::string::npos;
  }
  const auto items = value.items();
  return std::all_of(items.begin(), items.end(), [&](const auto& item) {
    return item.key() == "role" || item.key() == "from" || !value.is_structured() ||
           stands_in(item.value(), words);
  });
}

/// All text of one side of a pair.
std::string words_of(const ExampleText& text) {
  std::string words = text.prompt + "\n" + text.answer;
  if (text.conversation) {
    for (const ChatMessage& message : text.conversation->messages) {
      words += '\n';
      words += message.content().value_or("");
    }
  }
  return words;
}

bool has_messages(const LineJson& line) {
  return std::any_of(kMessageNames.begin(), kMessageNames.end(),
                     [&](const char* key) { return has(line, key); });
}

Dropped missing(const std::string& what) { return {DropReason::members, what}; }

using ListOrDropped = std::variant<MessageList, Dropped>;

/// Beginning of an example.
struct PromptPart {
  const std::string* raw = nullptr;  ///< Plain text instead of a message; null: `list`.
  std::string member = {};           ///< Name of its member; empty: there is none.
  MessageList list = {};
};
using PromptOrDropped = std::variant<PromptPart, Dropped>;

/// Parses one line.
class LineParser {
 public:
  LineParser(const LineJson& line, const ExampleOptions& options)
      : line_(line), options_(options) {}

  std::variant<Example, Dropped> run() {
    Example example;
    example.kind = options_.kind;
    if (!options_.source_key.empty()) {
      const std::string* const source = line_.text(options_.source_key);
      if (source == nullptr) {
        return Dropped{DropReason::members, fmt::format("\"{}\" is no text", options_.source_key)};
      }
      example.source = *source;
    }
    auto dropped = parse(example);
    if (!other_type_.empty() && (!dropped || dropped->reason == DropReason::members ||
                                 dropped->reason == DropReason::pair_prompt)) {
      return Dropped{DropReason::members, fmt::format(R"("{}" is no text)", other_type_)};
    }
    if (dropped) {
      return *dropped;
    }
    for (const std::string& name : line_.unread()) {
      if (example.worse && may_be_prompt(name, example)) {
        return Dropped{DropReason::pair_prompt,
                       fmt::format(R"(it may be in "{}", too, which is not read: put that into )"
                                   R"("prompt", or take it out)",
                                   name)};
      }
      example.remarks.push_back({RemarkKind::not_read, name});
    }
    for (Remark& remark : remarks_) {
      example.remarks.push_back(std::move(remark));
    }
    return example;
  }

 private:
  /// True if an unread member holds text that neither prompt nor answers contain.
  bool may_be_prompt(const std::string& name, const Example& example) {
    return std::find(kPromptNames.begin(), kPromptNames.end(), name) != kPromptNames.end() &&
           !stands_in(*line_.read(name), words_of(example.text) + words_of(*example.worse));
  }

  /// A text that is not a list of messages, neither as JSON nor as printed by Python.
  const std::string* plain_text(const char* key) {
    const std::string* const text = line_.text(key);
    return text != nullptr && (says_messages(*text) || prints_messages(*text)) ? nullptr : text;
  }

  /// A text for a message. Null if missing; a non-empty value of another type is remembered.
  const std::string* said_text(const char* key) {
    const std::string* const text = line_.text(key);
    if (text == nullptr && line_.has(key) && !line_.read(key)->empty() && other_type_.empty()) {
      other_type_ = key;
    }
    return text;
  }

  std::optional<Dropped> parse(Example& example) {
    switch (options_.kind) {
      case ExampleKind::chat:
        return take(chat(options_.train_on_last), example.text);
      case ExampleKind::prompt:
        return take(completed(), example.text);
      case ExampleKind::kto:
        return labelled(example);
      case ExampleKind::preference:
        return preference(example);
      case ExampleKind::text:
        return plain(example);
    }
    return std::nullopt;
  }

  static std::optional<Dropped> take(TextOrDropped from, ExampleText& to) {
    if (auto* const dropped = std::get_if<Dropped>(&from)) {
      return *dropped;
    }
    to = std::get<ExampleText>(std::move(from));
    return std::nullopt;
  }

  [[nodiscard]] TextOrDropped rendered(const MessageList& list, bool train_on_last = false) {
    remarks_.insert(remarks_.end(), list.remarks.begin(), list.remarks.end());
    return conversation_text(list, line_, train_on_last || options_.train_on_last);
  }

  [[nodiscard]] TextOrDropped chat(bool train_on_last) {
    auto list = messages();
    if (auto* const dropped = std::get_if<Dropped>(&list)) {
      return *dropped;
    }
    return rendered(std::get<MessageList>(list), train_on_last);
  }

  /// Messages of a line, or those made of Alpaca's members.
  ListOrDropped messages() {
    for (const char* const key : kMessageNames) {
      if (line_.has(key)) {
        auto list = message_list(*line_.read(key));
        if (auto* const messages = std::get_if<MessageList>(&list)) {
          prepend_system(*messages);
          read_masked_role();
        }
        return list;
      }
    }
    const std::string* const output = said_text("output");
    auto asked = instruction();
    if (!asked || output == nullptr) {
      return missing(R"(no "messages" (nor "conversations", nor "instruction" and "output"))");
    }
    if (auto* const list = std::get_if<MessageList>(&*asked)) {
      append(*list, text_message("assistant", *output));
      return is_blank(*output) ? ListOrDropped(Dropped{DropReason::empty_answer, {}})
                               : std::move(*asked);
    }
    return *asked;
  }

  /// Prepends "system" to a list that has no system message.
  void prepend_system(MessageList& list) {
    const std::string* const system =
        list.messages.empty() || list.messages.front().value("role", "") != "system"
            ? said_text("system")
            : nullptr;
    if (system != nullptr && !system->empty()) {
      MessageList whole = text_message("system", *system);
      append(whole, list);
      list = std::move(whole);
    }
  }

  /// Reads NeMo's name of the untrained role, beside conversations.
  void read_masked_role() {
    const auto* const mask = line_.has("mask") ? line_.text("mask") : nullptr;
    if (mask != nullptr && message_role(*mask).name != "user") {
      remarks_.push_back({RemarkKind::not_read, "mask"});
    }
  }

  /// Question in Alpaca's members: "history", "instruction" and "input", "system". nullopt: no
  /// instruction.
  std::optional<ListOrDropped> instruction() {
    const std::string* const text = said_text("instruction");
    if (text == nullptr) {
      return std::nullopt;
    }
    MessageList list;
    if (const LineJson* const history = line_.read("history")) {
      for (const LineJson& turn : *history) {
        if (!turn.is_array() || turn.size() != 2 || !turn[0].is_string() || !turn[1].is_string()) {
          return missing(R"("history" is no list of a question and its answer each)");
        }
        append(list, text_message("user", turn[0]));
        append(list, text_message("assistant", turn[1]));
      }
    }
    const std::string* const input = said_text("input");
    append(list, text_message(
                     "user", input == nullptr || input->empty() ? *text : *text + "\n\n" + *input));
    prepend_system(list);
    return list;
  }

  /// Prompt before the answers of a pair or before the completion.
  PromptOrDropped prompt() {
    const std::string* const text = plain_text("prompt");
    if (text != nullptr) {
      return asked_in("prompt", *text, /*raw=*/!line_.has("system"));
    }
    std::vector<const char*> lists = {"prompt"};
    lists.insert(lists.end(), kMessageNames.begin(), kMessageNames.end());
    for (const char* const key : lists) {
      if (line_.has(key)) {
        auto list = message_list(*line_.read(key));
        if (const auto* const dropped = std::get_if<Dropped>(&list)) {
          return Dropped{dropped->reason, fmt::format("\"{}\": {}", key, dropped->detail)};
        }
        prepend_system(std::get<MessageList>(list));
        return PromptPart{.member = key, .list = std::get<MessageList>(std::move(list))};
      }
    }
    if (auto asked = instruction()) {
      if (const auto* const dropped = std::get_if<Dropped>(&*asked)) {
        return *dropped;
      }
      return PromptPart{.member = "instruction", .list = std::get<MessageList>(std::move(*asked))};
    }
    for (const char* const key : {"question", "input"}) {
      if (const std::string* const question = said_text(key)) {
        return asked_in(key, *question, /*raw=*/false);
      }
    }
    return PromptPart{};
  }

  PromptPart asked_in(const char* key, const std::string& text, bool raw) {
    PromptPart part{
        .raw = raw ? &text : nullptr, .member = key, .list = text_message("user", text)};
    if (!raw) {
      prepend_system(part.list);
    }
    return part;
  }

  /// Answer: messages, or the text of one.
  ListOrDropped answer(const char* key) {
    const std::string* const text = plain_text(key);
    if (text == nullptr) {
      auto list = message_list(*line_.read(key));
      if (const auto* const dropped = std::get_if<Dropped>(&list)) {
        return Dropped{dropped->reason, fmt::format("\"{}\": {}", key, dropped->detail)};
      }
      return list;
    }
    return is_blank(*text) ? ListOrDropped(Dropped{DropReason::empty_answer, key})
                           : text_message("assistant", *text);
  }

  static TextOrDropped raw(const std::string& prompt, const std::string& answer) {
    if (is_blank(answer)) {
      return Dropped{DropReason::empty_answer, {}};
    }
    return ExampleText{.prompt = prompt, .answer = answer};
  }

  /// Prompt and completion: both texts, or both messages.
  TextOrDropped completed() {
    auto before = prompt();
    if (const auto* const dropped = std::get_if<Dropped>(&before)) {
      return *dropped;
    }
    const auto& part = std::get<PromptPart>(before);
    if (part.member.empty() || !line_.has("completion")) {
      return missing(R"(no "prompt" or no "completion")");
    }
    const std::string* const text = plain_text("completion");
    if (part.raw != nullptr && text != nullptr) {
      return raw(*part.raw, *text);
    }
    const auto after = answer("completion");
    if (const auto* const dropped = std::get_if<Dropped>(&after)) {
      return *dropped;
    }
    const auto& completion = std::get<MessageList>(after);
    if (auto dropped = answered_twice(part, completion, DropReason::members)) {
      return *dropped;
    }
    return rendered(after_prompt(part.list, completion));
  }

  /// Rejects a prompt that ends with an answer, which leaves nothing to answer.
  static std::optional<Dropped> answered_twice(const PromptPart& part, const MessageList& answer,
                                               DropReason reason) {
    const auto is_answer = [](const LineJson& message) {
      return message.value("role", "") == "assistant";
    };
    if (part.list.messages.empty() || !is_answer(part.list.messages.back()) ||
        !is_answer(answer.messages.front())) {
      return std::nullopt;
    }
    return Dropped{reason, fmt::format(R"("{}" ends with an answer already; take that out of it)",
                                       part.member)};
  }

  /// A conversation's label applies to its last message.
  std::optional<Dropped> labelled(Example& example) {
    const LineJson* label = nullptr;
    for (const char* const key : kLabelNames) {
      label = label == nullptr ? line_.read(key) : label;
    }
    const std::optional<bool> value = label == nullptr ? std::nullopt : label_value(*label);
    if (!value) {
      return Dropped{DropReason::label, label == nullptr ? R"(no "label")" : std::string()};
    }
    example.desirable = *value;
    return take(line_.has("completion") ? completed() : chat(/*train_on_last=*/true), example.text);
  }

  std::optional<Dropped> preference(Example& example) {
    if (!line_.has("chosen") || !line_.has("rejected")) {
      return missing(R"(no "chosen" or no "rejected")");
    }
    auto before = prompt();
    if (const auto* const dropped = std::get_if<Dropped>(&before)) {
      return *dropped;
    }
    const auto& part = std::get<PromptPart>(before);
    example.worse.emplace();
    const std::string* const chosen = plain_text("chosen");
    const std::string* const rejected = plain_text("rejected");
    const bool texts = chosen != nullptr && rejected != nullptr;
    if (texts && part.raw != nullptr) {
      auto dropped = take(raw(*part.raw, *chosen), example.text);
      return dropped ? dropped : take(raw(*part.raw, *rejected), *example.worse);
    }
    return texts && part.member.empty() ? split_texts(*chosen, *rejected, example)
                                        : pair_of_messages(part, example);
  }

  /// Takes the common prefix of both texts, without a trailing space, as the prompt, if no other
  /// member may be it.
  std::optional<Dropped> split_texts(const std::string& chosen, const std::string& rejected,
                                     Example& example) {
    const auto [left, right] = std::mismatch(
        chosen.begin(),
        chosen.begin() + static_cast<std::ptrdiff_t>(std::min(chosen.size(), rejected.size())),
        rejected.begin());
    if (left == chosen.end() && right == rejected.end()) {
      return Dropped{DropReason::equal_pair, {}};
    }
    if (const auto others = line_.unread(/*that_may_be_words=*/true); !others.empty()) {
      return Dropped{DropReason::pair_prompt,
                     fmt::format(R"(it may be in "{}", which is not read: call that "prompt", or )"
                                 R"(take it out)",
                                 fmt::join(others, "\", \""))};
    }
    auto shared = static_cast<std::size_t>(left - chosen.begin());
    while (shared > 0 && shared < chosen.size() && storage::continues(chosen[shared])) {
      --shared;
    }
    shared -= shared > 0 && chosen[shared - 1] == ' ' ? 1 : 0;
    if (is_blank(chosen.substr(0, shared))) {
      return Dropped{DropReason::pair_prompt,
                     R"("chosen" and "rejected" begin with nothing in common; give a "prompt")"};
    }
    auto dropped = take(raw(chosen.substr(0, shared), chosen.substr(shared)), example.text);
    return dropped ? dropped
                   : take(raw(rejected.substr(0, shared), rejected.substr(shared)), *example.worse);
  }

  std::optional<Dropped> pair_of_messages(const PromptPart& part, Example& example) {
    auto chosen = answer("chosen");
    auto rejected = answer("rejected");
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
    if (left.messages.front().value("role", "") == "assistant") {
      if (part.member.empty()) {
        return Dropped{DropReason::pair_prompt,
                       R"("chosen" begins with the assistant's message; give a "prompt")"};
      }
      if (auto dropped = answered_twice(part, left, DropReason::pair_prompt)) {
        return dropped;
      }
      left = after_prompt(part.list, left);
      right = after_prompt(part.list, right);
    } else if (auto dropped = split_messages(part, left, right)) {
      return dropped;
    }
    auto dropped = take(rendered(left), example.text);
    return dropped ? dropped : take(rendered(right), *example.worse);
  }

  /// Takes the messages that both lists begin with as the prompt; a prompt given separately is
  /// among them.
  std::optional<Dropped> split_messages(const PromptPart& part, MessageList& left,
                                        MessageList& right) {
    std::size_t shared = 0;
    while (shared < std::min(left.messages.size(), right.messages.size()) &&
           left.messages[shared] == right.messages[shared]) {
      left.weights[shared] = right.weights[shared] = 0.0F;
      ++shared;
    }
    const auto common = std::span(left.messages).first(shared);
    if (std::none_of(common.begin(), common.end(), [](const LineJson& message) {
          const std::string role = message.value("role", "");
          return role == "user" || role == "tool";
        })) {
      return Dropped{DropReason::pair_prompt,
                     R"("chosen" and "rejected" begin with nothing in common; give a "prompt")"};
    }
    for (const LineJson& message : part.list.messages) {
      if (message.value("role", "") == "system" || part.member.empty()) {
        continue;
      }
      const bool there = std::any_of(common.begin(), common.end(), [&](const LineJson& each) {
        return each.value("role", "") == message.value("role", "") &&
               each.value("content", LineJson()).dump().find(inner_text(message)) !=
                   std::string::npos;
      });
      if (!there) {
        return Dropped{DropReason::pair_prompt,
                       fmt::format(R"("{}" is not what "chosen" and "rejected" begin with; give )"
                                   R"(answers alone, or take it out)",
                                   part.member)};
      }
    }
    prepend_system(left);
    prepend_system(right);
    return std::nullopt;
  }

  /// Content of a message as JSON, without quotes or brackets and surrounding white space.
  static std::string inner_text(const LineJson& message) {
    const LineJson content = message.value("content", LineJson());
    const std::string text = content.is_string() ? content.get<std::string>() : std::string();
    const std::string quoted = LineJson(trimmed(text)).dump();
    return quoted.substr(1, quoted.size() - 2);
  }

  std::optional<Dropped> plain(Example& example) {
    const std::string* const text = line_.text("text");
    if (text == nullptr) {
      return missing(line_.has("text")       ? R"("text" is no string)"
                     : line_.is_null("text") ? R"("text" is null)"
                                             : R"(no "text")");
    }
    if (text->empty()) {
      return Dropped{DropReason::empty_answer, {}};
    }
    example.text.answer = *text;
    return std::nullopt;
  }

  LineMembers line_;
  std::string other_type_ = {};  ///< Member that should be text and is not; empty: none.
  const ExampleOptions& options_;
  std::vector<Remark> remarks_ = {};
};

}  // namespace

Result<ExampleKind> example_kind_named(std::string_view name) {
  const auto* const found = std::find(kKindNames.begin(), kKindNames.end(), name);
  if (found == kKindNames.end()) {
    return user_error(fmt::format("unknown kind of data \"{}\"; use one of {}", name,
                                  fmt::join(kKindNames, ", ")));
  }
  return static_cast<ExampleKind>(found - kKindNames.begin());
}

std::string_view example_kind_name(ExampleKind kind) {
  return kKindNames.at(static_cast<std::size_t>(kind));
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
  const bool conversation = has_messages(line) || (has(line, "instruction") && has(line, "output"));
  // A number beside a conversation may mean anything, such as a class.
  const bool says = label != nullptr && !label->is_number() && label_value(*label).has_value();
  if (conversation && says && *label != "0" && *label != "1") {
    return ExampleKind::kto;
  }
  if (conversation) {
    return ExampleKind::chat;
  }
  return has(line, "text") ? std::optional(ExampleKind::text) : std::nullopt;
}

std::string_view example_kinds_help() {
  return R"("messages", "conversations", "instruction" and "output", "prompt" and "completion" )"
         R"((and "label"), "messages" and "label", "chosen" and "rejected", or "text")";
}

std::string_view drop_reason_text(DropReason reason) {
  return kReasonTexts.at(static_cast<std::size_t>(reason));
}

DropReason drop_reason_of(storage::LineFault fault) {
  switch (fault) {
    case storage::LineFault::too_long:
      return DropReason::long_line;
    case storage::LineFault::cut_off:
      return DropReason::cut_off;
    case storage::LineFault::half_surrogate:
      return DropReason::half_surrogate;
    case storage::LineFault::no_number:
      return DropReason::no_number;
    case storage::LineFault::huge_number:
      return DropReason::huge_number;
    case storage::LineFault::bad_byte:
      return DropReason::bad_byte;
    case storage::LineFault::control:
      return DropReason::control;
    case storage::LineFault::fields:
      return DropReason::fields;
    case storage::LineFault::open_quote:
      return DropReason::open_quote;
    case storage::LineFault::not_json:
    case storage::LineFault::no_object:
      return DropReason::not_json;
    case storage::LineFault::no_text:
    case storage::LineFault::null_text:
    case storage::LineFault::other_text:
      return DropReason::members;
    case storage::LineFault::empty_text:
      return DropReason::empty_answer;
  }
  return DropReason::not_json;
}

std::variant<Example, Dropped> parse_example(std::string_view line, const ExampleOptions& options) {
  constexpr storage::JsonLimits limits = {.bytes = kConversationLimitBytes,
                                          .values = 10'000'000,
                                          .run = kConversationLimitBytes,
                                          .depth = kConversationLimitDepth};
  if (const std::string excess = storage::json_excess(line, limits); !excess.empty()) {
    return Dropped{DropReason::not_json, excess};
  }
  const LineJson json = LineJson::parse(line, nullptr, false);
  if (!json.is_object()) {
    return Dropped{DropReason::not_json, {}};
  }
  return LineParser(json, options).run();
}

}  // namespace train::data
