#include "data/chat/chat_template.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "data/chat/built_in_templates.hpp"
#include "data/chat/jinja_process.hpp"
#include "data/chat/template_files.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

using Json = nlohmann::ordered_json;

const BuiltInTemplate* find_built_in(std::string_view name) {
  const auto all = built_in_templates();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const BuiltInTemplate& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

/// Text to render: a prefix of a conversation.
struct ChatItem {
  const Conversation* conversation = nullptr;
  ChatPrefix prefix;
};

/// Non-empty members that no built-in template reads, sorted.
std::vector<std::string> members_besides_texts(const std::vector<ChatMessage>& messages) {
  constexpr std::array<std::string_view, 5> texts = {"role", "content", "reasoning_content",
                                                     "thinking", "reasoning"};
  std::set<std::string> names;
  for (const ChatMessage& message : messages) {
    const Json object = Json::parse(message.json());
    for (const auto& [name, value] : object.items()) {
      const bool empty = value.is_null() || value == "" || value == Json::array();
      if (!empty && std::find(texts.begin(), texts.end(), name) == texts.end()) {
        names.insert(name);
      }
    }
  }
  return {names.begin(), names.end()};
}

Status check_settings(const ChatSettings& settings) {
  if (!date_parts(settings.date)) {
    return user_error(fmt::format("the date of a chat template is YYYY-MM-DD, not {}",
                                  storage::shown(settings.date)));
  }
  return {};
}

/// Conversation as sent to the process. Errors (user): too large.
Result<std::string> conversation_line(const Conversation& conversation) {
  std::string messages;
  for (const ChatMessage& message : conversation.messages) {
    messages += messages.empty() ? "" : ", ";
    messages += message.json();
  }
  const auto or_else = [](const std::string& json, const char* otherwise) {
    return json.empty() ? std::string(otherwise) : json;
  };
  std::string line =
      fmt::format(R"({{"messages": [{}], "tools": {}, "variables": {}}})", messages,
                  or_else(conversation.tools, "null"), or_else(conversation.variables, "{}"));
  if (line.size() > kConversationLimitBytes) {
    return user_error(fmt::format("the conversation has {} bytes; at most {} are rendered",
                                  line.size(), kConversationLimitBytes));
  }
  return line + '\n';
}

}  // namespace

struct ChatTemplate::State {
  ChatSettings settings;
  std::string where;
  SpecialTokens tokens;
  TemplateSources sources;
  const BuiltInTemplate* built_in = nullptr;  ///< Used instead of the sources.
  std::optional<JinjaProcess> process;        ///< Set once one was needed.
  bool turns_known = false;
  std::optional<TurnTexts> turn_texts;

  /// `spans`: whether spans are wanted.
  std::vector<Result<RenderedChat>> render(std::span<const ChatItem> items, bool spans);
  Error about(const Error& error) const {
    return {error.kind, fmt::format("{}: {}", where, error.message)};
  }

 private:
  Result<RenderedChat> render_built_in(const ChatItem& item) const;
  [[nodiscard]] Result<std::string> source_for(const Conversation& conversation) const;
  Status send(const ChatItem& item, bool spans);
  std::vector<Result<RenderedChat>> render_jinja(std::span<const ChatItem> items, bool spans);

  const Conversation* sent_ = nullptr;  ///< Conversation that the process has now.
};

std::vector<Result<RenderedChat>> ChatTemplate::State::render(std::span<const ChatItem> items,
                                                              bool spans) {
  std::vector<Result<RenderedChat>> texts;
  if (built_in == nullptr) {
    texts = render_jinja(items, spans);
  } else {
    std::transform(items.begin(), items.end(), std::back_inserter(texts),
                   [&](const ChatItem& item) { return render_built_in(item); });
  }
  for (auto& text : texts) {
    if (!text) {
      text = about(text.error());
    }
  }
  return texts;
}

Result<RenderedChat> ChatTemplate::State::render_built_in(const ChatItem& item) const {
  if (!item.conversation->tools.empty() && item.conversation->tools != "[]") {
    return user_error("this template does not support tools; use the model's own template");
  }
  const auto begin = item.conversation->messages.begin();
  std::vector<ChatMessage> messages(
      begin, begin + static_cast<std::ptrdiff_t>(item.prefix.messages_count));
  for (const auto& [index, content] : item.prefix.contents) {
    messages.at(index) = ChatMessage(messages.at(index).role(), content);
  }
  auto chat = built_in->render(messages, item.prefix.options.add_generation_prompt, tokens);
  if (chat) {
    chat->unasked = members_besides_texts(messages);
  }
  return chat;
}

/// Name of the template to use for a conversation.
Result<std::string> ChatTemplate::State::source_for(const Conversation& conversation) const {
  std::string name = settings.name;
  if (name.empty()) {
    name = !conversation.tools.empty() && sources.contains("tool_use") ? "tool_use" : "default";
  }
  if (!sources.contains(name)) {
    std::vector<std::string> names;
    std::transform(sources.begin(), sources.end(), std::back_inserter(names),
                   [](const auto& source) { return source.first; });
    return user_error(fmt::format("it has no template named {}; it has {}", storage::shown(name),
                                  fmt::join(names, ", ")));
  }
  return name;
}

Status ChatTemplate::State::send(const ChatItem& item, bool spans) {
  const auto name = TRAIN_TRY(source_for(*item.conversation));
  if (sent_ != item.conversation) {
    const auto line = TRAIN_TRY(conversation_line(*item.conversation));
    process->send(line);
    sent_ = item.conversation;
  }
  Json request = {{"template", name},
                  {"messages", item.prefix.messages_count},
                  {"add_generation_prompt", item.prefix.options.add_generation_prompt},
                  {"spans", spans}};
  if (!item.prefix.contents.empty()) {
    request["contents"] = item.prefix.contents;
  }
  process->send(request.dump() + '\n');
  return {};
}

/// Keeps the process busy with some queued texts, and their number bounded.
std::vector<Result<RenderedChat>> ChatTemplate::State::render_jinja(std::span<const ChatItem> items,
                                                                    bool spans) {
  constexpr std::size_t most_ahead = 64;
  constexpr std::size_t most_bytes_ahead = std::size_t{1} << 20U;
  std::vector<Result<RenderedChat>> texts;
  std::map<std::size_t, Error> not_sent;
  std::size_t next = 0;  // Next text to send.
  sent_ = nullptr;       // Another conversation may have the same address by now.
  while (texts.size() < items.size()) {
    const std::size_t now = texts.size();
    if (!process || !process->usable()) {
      process.reset();
      auto started = JinjaProcess::start(sources, tokens, settings);
      if (!started) {
        texts.resize(items.size(), started.error());
        return texts;
      }
      process.emplace(std::move(started).value());
      settings.pythons = {process->program()};
      sent_ = nullptr;
      next = now;
    }
    while (next < items.size() && (next == now || (next < now + most_ahead &&
                                                   process->unsent_bytes() < most_bytes_ahead))) {
      if (const Status sent = send(items[next], spans); !sent) {
        not_sent.insert_or_assign(next, sent.error());
      }
      ++next;
    }
    const auto failed = not_sent.find(now);
    texts.push_back(failed == not_sent.end() ? process->receive()
                                             : Result<RenderedChat>(failed->second));
  }
  return texts;
}

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::open(const std::filesystem::path& path,
                                        const ChatSettings& settings) {
  TRAIN_RETURN_IF_ERROR(check_settings(settings));
  auto files = TRAIN_TRY(read_template_files(path));
  auto state = std::make_unique<State>();
  state->settings = settings;
  state->where = files.where;
  state->tokens = settings.special_tokens;
  if (settings.tokenizer.empty()) {
    state->tokens.merge(files.tokens);
  } else {
    auto tokens = TRAIN_TRY(read_special_tokens(settings.tokenizer));
    state->tokens.merge(tokens);
  }
  state->sources = std::move(files.sources);
  return ChatTemplate(std::move(state));
}

Result<ChatTemplate> ChatTemplate::built_in(std::string_view name, const ChatSettings& settings) {
  TRAIN_RETURN_IF_ERROR(check_settings(settings));
  const BuiltInTemplate* const found = find_built_in(name);
  if (found == nullptr) {
    return user_error(fmt::format(
        "unknown built-in chat template {}; there are {}; for a template in a file, give its path",
        storage::shown(name), fmt::join(built_in_chat_templates(), ", ")));
  }
  auto state = std::make_unique<State>();
  state->settings = settings;
  state->where = fmt::format("built-in chat template {}", name);
  state->tokens = settings.special_tokens;
  state->tokens.insert(found->tokens.begin(), found->tokens.end());
  state->built_in = found;
  return ChatTemplate(std::move(state));
}

Result<ChatTemplate> ChatTemplate::find(const std::string& name_or_path,
                                        const ChatSettings& settings) {
  std::error_code ignored;
  const bool is_path = name_or_path.find_first_of("/.") != std::string::npos ||
                       std::filesystem::exists(name_or_path, ignored);
  return find_built_in(name_or_path) == nullptr && is_path ? open(name_or_path, settings)
                                                           : built_in(name_or_path, settings);
}

Result<ChatTemplate> ChatTemplate::of_source(const std::string& source, const std::string& where,
                                             const ChatSettings& settings) {
  TRAIN_RETURN_IF_ERROR(check_settings(settings));
  auto state = std::make_unique<State>();
  state->settings = settings;
  state->where = where;
  state->tokens = settings.special_tokens;
  state->sources = {{"default", source}};
  return ChatTemplate(std::move(state));
}

namespace {

ChatPrefix whole(const Conversation& conversation, const RenderOptions& options) {
  return {.messages_count = conversation.messages.size(), .options = options};
}

}  // namespace

Result<std::string> ChatTemplate::render(const Conversation& conversation,
                                         const RenderOptions& options) {
  const ChatItem item{.conversation = &conversation, .prefix = whole(conversation, options)};
  auto text = TRAIN_TRY(std::move(state_->render(std::span(&item, 1), false).front()));
  return std::move(text.text);
}

Result<RenderedChat> ChatTemplate::render_with_spans(const Conversation& conversation,
                                                     const RenderOptions& options) {
  return std::move(render_all(std::span(&conversation, 1), options).front());
}

std::vector<Result<RenderedChat>> ChatTemplate::render_all(
    std::span<const Conversation> conversations, const RenderOptions& options) {
  std::vector<ChatItem> items;
  for (const Conversation& conversation : conversations) {
    items.push_back({.conversation = &conversation, .prefix = whole(conversation, options)});
  }
  return state_->render(items, true);
}

std::vector<Result<RenderedChat>> ChatTemplate::render_prefixes(
    const Conversation& conversation, std::span<const ChatPrefix> prefixes) {
  std::vector<ChatItem> items;
  for (const ChatPrefix& prefix : prefixes) {
    TRAIN_CHECK(prefix.messages_count <= conversation.messages.size());
    TRAIN_CHECK(prefix.contents.empty() || prefix.contents.rbegin()->first < prefix.messages_count);
    items.push_back({.conversation = &conversation, .prefix = prefix});
  }
  return state_->render(items, false);
}

namespace {

/// Inputs: a question with its generation prompt, the question alone, and both messages.
std::optional<TurnTexts> turn_texts_of(std::span<const Result<RenderedChat>> rendered,
                                       std::string_view answer) {
  if (!rendered[0] || !rendered[1] || !rendered[2]) {
    return std::nullopt;
  }
  const std::string& asked = rendered[0]->text;
  const std::string& unasked = rendered[1]->text;
  const std::string& whole = rendered[2]->text;
  const std::size_t found = whole.find(answer);
  if (asked.size() <= unasked.size() || !asked.starts_with(unasked) ||
      !whole.starts_with(unasked) || found == std::string::npos || found < unasked.size() ||
      whole.find(answer, found + 1) != std::string::npos) {
    return std::nullopt;
  }
  TurnTexts texts{.question = asked.substr(unasked.size()),
                  .end = whole.substr(found + answer.size())};
  // The generation prompt may begin a thought that answers do not have.
  const std::string header = whole.substr(unasked.size(), found - unasked.size());
  if (!header.empty() && texts.question.starts_with(header)) {
    texts.question = header;
  }
  return texts;
}

}  // namespace

const std::optional<TurnTexts>& ChatTemplate::turn_texts() {
  if (!std::exchange(state_->turns_known, true)) {
    const std::string answer = "QxAnswerQx";
    const Conversation probe = {.messages = {{"user", "QxQuestionQx"}, {"assistant", answer}}};
    const std::array<ChatPrefix, 3> prefixes = {
        ChatPrefix{.messages_count = 1, .options = {.add_generation_prompt = true}},
        ChatPrefix{.messages_count = 1}, ChatPrefix{.messages_count = 2}};
    state_->turn_texts = turn_texts_of(render_prefixes(probe, prefixes), answer);
  }
  return state_->turn_texts;
}

const std::string& ChatTemplate::where() const { return state_->where; }

const SpecialTokens& ChatTemplate::special_tokens() const { return state_->tokens; }

TemplateSources ChatTemplate::sources() const {
  return state_->built_in == nullptr
             ? state_->sources
             : TemplateSources{{"default", std::string(state_->built_in->source)}};
}

std::string ChatTemplate::fingerprint() const {
  const Json facts = {{"built_in", state_->built_in == nullptr ? "" : state_->built_in->name},
                      {"sources", state_->sources},
                      {"tokens", state_->tokens},
                      {"name", state_->settings.name},
                      {"date", state_->settings.date}};
  return storage::digest_text(facts.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::span<const std::string_view> built_in_chat_templates() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const BuiltInTemplate& each : built_in_templates()) {
      all.push_back(each.name);
    }
    return all;
  }();
  return names;
}

}  // namespace train::data
