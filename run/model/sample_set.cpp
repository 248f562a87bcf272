#include "run/model/sample_set.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/text/log.hpp"
#include "data/chat/chat_template.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "run/model/model_files.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

/// Template of the run's chats: that of the data's conversations, which the run's copy of its model
/// gets, too.
Result<data::ChatTemplate> find_template(const configs::RunConfig& config, const fs::path& root,
                                         const fs::path& tokenizer) {
  data::ChatSettings settings;
  settings.tokenizer = tokenizer;
  std::optional<Error> last;
  for (const fs::path& folder : {data::kept_tokenizer_folder(config.data.dir),
                                 model_directory(root), fs::path(config.model.from)}) {
    std::error_code ignored;
    if (folder.empty() || !fs::exists(folder, ignored)) {
      continue;
    }
    auto found = data::ChatTemplate::open(folder, settings);
    if (found) {
      return found;
    }
    last = found.error();
  }
  return user_error(fmt::format("run.sample_chats: {}",
                                last ? last->message
                                     : "neither the data nor the model has a chat template; leave "
                                       "the chats out, or prepare the data with --template"));
}

Result<data::Conversation> read_chat(const std::string& text) {
  if (text.starts_with('[')) {
    auto parsed = TRAIN_TRY(data::parse_conversation(text));
    if (parsed.messages.empty()) {
      return user_error("a conversation without messages; leave it out");
    }
    return parsed;
  }
  data::Conversation conversation;
  conversation.messages.emplace_back("user", text);
  return conversation;
}

Error of_prompt(const char* key, std::size_t index, const Error& error) {
  return {error.kind, fmt::format("{}[{}]: {}", key, index, error.message)};
}

}  // namespace

std::int64_t samples_of(const configs::RunSection& section) {
  if (section.sample_interval_steps == 0) {
    return 0;
  }
  const std::int64_t given = std::ssize(section.sample_prompts) + std::ssize(section.sample_chats);
  return given > 0 ? given : 1;
}

Result<SampleSet> SampleSet::open(const configs::RunConfig& config, const fs::path& root,
                                  std::int64_t vocab) {
  auto codec = TextCodec::of_run(root, config, vocab);
  if (!codec) {
    return Error{codec.error().kind,
                 fmt::format("run.sample_interval_steps: {}", codec.error().message)};
  }
  SampleSet set(std::move(*codec));
  const configs::RunSection& section = config.run;
  const auto add = [&](const char* key, std::size_t index, const std::string& shown,
                       const Result<Tokens>& tokens) -> Status {
    if (!tokens) {
      return of_prompt(key, index, tokens.error());
    }
    if (std::ssize(*tokens) > config.data.sequence_length) {
      log_warning(
          fmt::format("prompt_cut {}[{}]: it has {} tokens, of which the model sees the "
                      "last {}: its data.sequence_length",
                      key, index, tokens->size(), config.data.sequence_length));
    }
    set.shown_.push_back(shown);
    set.prompts_.push_back(*tokens);
    return {};
  };
  std::vector<std::string> texts = section.sample_prompts;
  if (texts.empty() && section.sample_chats.empty()) {
    texts.push_back(section.sample_prompt);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    TRAIN_RETURN_IF_ERROR(add("run.sample_prompts", i, texts[i], set.codec_.encode(texts[i])));
  }
  if (section.sample_chats.empty()) {
    return set;
  }
  auto chats = TRAIN_TRY(find_template(config, root, set.codec_.files()));
  for (std::size_t i = 0; i < section.sample_chats.size(); ++i) {
    const auto tokens = [&]() -> Result<Tokens> {
      const auto conversation = TRAIN_TRY(read_chat(section.sample_chats[i]));
      const auto text = TRAIN_TRY(chats.render(conversation, {.add_generation_prompt = true}));
      return set.codec_.encode_rendered(text);
    }();
    TRAIN_RETURN_IF_ERROR(add("run.sample_chats", i, section.sample_chats[i], tokens));
  }
  return set;
}

std::string SampleSet::text(std::size_t prompt, std::span<const std::int32_t> tokens) const {
  TextCodec::Stream stream(codec_, prompts_.at(prompt));
  std::string text;
  for (const std::int32_t token : tokens) {
    text += stream.add(token);
  }
  text += stream.finish();
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace))
      .get<std::string>();
}

}  // namespace train::run
