#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "cli/checkpoints/text_writer.hpp"
#include "cli/checkpoints/trained_model.hpp"
#include "cli/command.hpp"
#include "data/chat/chat_template.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "engine/generate/cache_bytes.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "run/model/model_files.hpp"
#include "run/model/text_codec.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/files/input_file.hpp"
#include "storage/weight_files/weight_directory.hpp"

namespace train::cli {
using namespace run;
namespace {

/// Default context of a published model.
constexpr std::int64_t kContext = 1024;

using Json = nlohmann::ordered_json;
using Tokens = std::vector<std::int32_t>;

/// Model for generation, with the codec of its tokens.
struct Writer {
  TrainedModel model;
  TextCodec codec;
  std::filesystem::path files;  ///< Directory of the chat template.
  bool is_run = true;
};

/// Template of the run, or of its data if the model was trained from scratch.
std::filesystem::path template_folder(const std::filesystem::path& run,
                                      const configs::RunConfig& config) {
  std::filesystem::path own = model_directory(run);
  const std::filesystem::path kept = data::kept_tokenizer_folder(config.data.dir);
  const bool has_own = data::ChatTemplate::open(own).ok();
  return !has_own && data::ChatTemplate::open(kept).ok() ? kept : own;
}

/// Context length of a published model: the requested one, limited by its positions.
Result<std::int64_t> context_of(const GenerateOptions& options) {
  const auto config = TRAIN_TRY(find_model_config(options.run_directory));
  const auto spec = TRAIN_TRY(engine::spec_from_config(config.text, config.source, 0));
  const std::int64_t learned = spec.positions.empty() ? 0 : spec.position_rows;
  const std::int64_t wanted = options.context.value_or(kContext);
  if (learned == 0 || wanted <= learned) {
    return wanted;
  }
  if (options.context) {
    return user_error(fmt::format("--context {0}: {1} has {2} learned positions; give {2} or less",
                                  wanted, options.run_directory, learned));
  }
  return learned;
}

Result<Writer> open_writer(const GenerateOptions& options) {
  const std::filesystem::path path(options.run_directory);
  std::error_code ignored;
  if (std::filesystem::exists(path / "config.json", ignored) &&
      !std::filesystem::exists(path / "config.toml", ignored)) {
    if (options.step || options.ema) {
      return user_error(fmt::format("{}: {} is a model, which has no {}; leave it out",
                                    options.step ? "--step" : "--ema", options.run_directory,
                                    options.step ? "checkpoints" : "running average"));
    }
    const auto context = TRAIN_TRY(context_of(options));
    auto model = TRAIN_TRY(load_model_directory(path, context));
    auto codec = TRAIN_TRY(TextCodec::of_directory(path, model.options.model.vocab_size));
    return Writer{std::move(model), std::move(codec), path, false};
  }
  if (std::filesystem::exists(path / "adapter_config.json", ignored) &&
      !std::filesystem::exists(path / "config.toml", ignored)) {
    return user_error(storage::adapter_alone(path));
  }
  if (options.context) {
    return user_error(fmt::format(
        "--context {}: {} is a run, whose context is its data.sequence_length; leave it "
        "out",
        *options.context, options.run_directory));
  }
  auto model = TRAIN_TRY(load_model(path, options.step, options.ema));
  auto codec = TRAIN_TRY(TextCodec::of_run(path, model.config, model.options.model.vocab_size));
  auto files = template_folder(path, model.config);
  return Writer{std::move(model), std::move(codec), std::move(files)};
}

/// Prompt to continue: plain text, or a conversation for the template.
struct Prompt {
  std::string text;
  data::Conversation conversation = {};
};

/// Turns prompts into tokens: plain text, or with the model's chat template.
class PromptReader {
 public:
  static Result<PromptReader> open(const GenerateOptions& options, const Writer& writer) {
    PromptReader reader(options, writer);
    if (options.chat) {
      std::error_code ignored;
      if (options.chat_template.empty() && !std::filesystem::exists(writer.files, ignored)) {
        return user_error(fmt::format("{} has no chat template; give one with --template NAME|FILE",
                                      options.run_directory));
      }
      auto settings = data::ChatSettings::of_date(options.date);
      settings.tokenizer = writer.codec.files();
      auto found = TRAIN_TRY(options.chat_template.empty()
                                 ? data::ChatTemplate::open(writer.files, settings)
                                 : data::ChatTemplate::find(options.chat_template, settings));
      reader.template_ = std::make_unique<data::ChatTemplate>(std::move(found));
    }
    return reader;
  }

  /// Prompt of --prompt or of a line: with --chat a user message, or a JSON list of messages.
  [[nodiscard]] Result<Prompt> read(const std::string& text) const {
    Prompt prompt{.text = text};
    if (!options_->chat) {
      return prompt;
    }
    if (text.starts_with('[')) {
      prompt.conversation = TRAIN_TRY(data::parse_conversation(text));
      return prompt;
    }
    prompt.conversation = begun();
    prompt.conversation.messages.emplace_back("user", text);
    return prompt;
  }

  /// Conversation with only the system message.
  [[nodiscard]] data::Conversation begun() const {
    data::Conversation conversation;
    if (!options_->system.empty()) {
      conversation.messages.emplace_back("system", options_->system);
    }
    return conversation;
  }

  /// `where`: name of the prompt, in the warning that it was truncated.
  [[nodiscard]] Result<Tokens> tokens_of(const Prompt& prompt, const std::string& where) {
    auto tokens = TRAIN_TRY(read_tokens(prompt));
    const auto length = static_cast<std::int64_t>(tokens.size());
    if (const std::int64_t context = writer_->model.options.seq_len; length > context) {
      log_warning(fmt::format(
          "prompt_cut {}: it has {} tokens, of which the model sees the last "
          "{}: its {}",
          where, length, context, writer_->is_run ? "data.sequence_length" : "--context"));
    }
    return tokens;
  }

 private:
  [[nodiscard]] Result<Tokens> read_tokens(const Prompt& prompt) {
    if (!template_) {
      return writer_->codec.encode(prompt.text);
    }
    const auto text =
        TRAIN_TRY(template_->render(prompt.conversation, {.add_generation_prompt = true}));
    return writer_->codec.encode_rendered(text);
  }

  PromptReader(const GenerateOptions& options, const Writer& writer)
      : options_(&options), writer_(&writer) {}

  const GenerateOptions* options_;
  const Writer* writer_;
  std::unique_ptr<data::ChatTemplate> template_;
};

TextRequest request_of(const GenerateOptions& options, std::vector<Tokens> prompts) {
  return {.prompts = std::move(prompts),
          .tokens = options.tokens,
          .sampling = {.temperature = options.temperature,
                       .top_k = options.top_k,
                       .top_p = options.top_p,
                       .seed = options.seed},
          .stops = options.stops};
}

/// Text as JSON; an incomplete character is shown as U+FFFD.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Decimal that reads back as the same float.
std::string exact(float value) { return fmt::format("{:.9g}", static_cast<double>(value)); }

bool go_on() { return !standard_output().closed() && stop_signal() == 0; }

/// Prints one text as it is generated; with --logprobs one line per token.
std::string write_one(const GenerateOptions& options, TextWriter& writer, Tokens prompt) {
  std::string text;
  writer.write(request_of(options, {std::move(prompt)}), [&](const WrittenToken& written) {
    text += written.shown;
    if (!options.logprobs) {
      print(written.shown);
    } else if (written.token >= 0) {
      print(fmt::format("{} {} {}\n", written.token, exact(written.log_probability),
                        quoted(written.shown)));
    }
    return go_on();
  });
  return text;
}

/// Prints one JSON line for each prompt of the file, in order.
Status write_file(const GenerateOptions& options, PromptReader& reader, TextWriter& writer) {
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 30;
  const auto file = TRAIN_TRY(storage::InputFile::open(options.prompts));
  const auto content = TRAIN_TRY(file.read_text(kLargest));
  std::vector<std::string> lines;
  std::istringstream stream(content);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  std::vector<Tokens> prompts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto tokens = [&]() -> Result<Tokens> {
      const auto prompt = TRAIN_TRY(reader.read(lines[i]));
      return reader.tokens_of(prompt, fmt::format("{}:{}", options.prompts, i + 1));
    }();
    if (!tokens) {
      Error error = tokens.error();
      error.message = fmt::format("{}:{}: {}", options.prompts, i + 1, error.message);
      return error;
    }
    prompts.push_back(*tokens);
  }
  struct Text {
    std::string shown;
    Json tokens = Json::array(), log_probabilities = Json::array();
  };
  std::vector<Text> texts(lines.size());
  writer.write(request_of(options, std::move(prompts)), [&](const WrittenToken& written) {
    Text& text = texts[written.text];
    text.shown += written.shown;
    if (written.token >= 0) {
      text.tokens.push_back(written.token);
      // Formatted as a float: the shortest text of its double differs.
      text.log_probabilities.push_back(Json::parse(exact(written.log_probability)));
    }
    return go_on();
  });
  for (std::size_t i = 0; i < lines.size() && go_on(); ++i) {
    Json line{{"prompt", lines[i]}, {"text", texts[i].shown}};
    if (options.logprobs) {
      line["tokens"] = texts[i].tokens;
      line["logprobs"] = texts[i].log_probabilities;
    }
    print(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  return {};
}

void prompt_for_turn() {
  if (isatty(STDIN_FILENO) != 0) {
    print("> ");
  }
}

/// Chats with standard input, one line per turn, until it ends.
Status talk(const GenerateOptions& options, PromptReader& reader, TextWriter& writer) {
  Prompt prompt{.text = {}, .conversation = reader.begun()};
  for (std::string line; go_on() && (prompt_for_turn(), std::getline(std::cin, line));) {
    if (line.empty()) {
      continue;
    }
    prompt.conversation.messages.emplace_back("user", line);
    auto tokens = TRAIN_TRY(reader.tokens_of(prompt, "the conversation"));
    const std::string answer = write_one(options, writer, std::move(tokens));
    print("\n");
    prompt.conversation.messages.emplace_back("assistant", answer);
  }
  return {};
}

/// Continues prompts with the newest (or given) checkpoint of a run, or a published model.
Status generate(const GenerateOptions& options) {
  allow_signals();
  const auto opened = TRAIN_TRY(open_writer(options));
  const auto cache = options.latent_cache ? engine::CacheForm::latent : engine::CacheForm::expanded;
  if (!engine::cache_bytes(opened.model.options.model, cache)) {
    return user_error(
        fmt::format("--cache latent: {} has no latent attention, whose latents it keeps; leave it "
                    "out",
                    options.run_directory));
  }
  auto reader = TRAIN_TRY(PromptReader::open(options, opened));
  const bool file = !options.prompts.empty();
  TextWriter writer(opened.model, opened.codec, opened.model.config.runtime.threads,
                    file ? options.batch : 1, cache);
  if (file) {
    return write_file(options, reader, writer);
  }
  if (options.chat && options.prompt.empty()) {
    return talk(options, reader, writer);
  }
  const auto prompt = TRAIN_TRY(reader.read(options.prompt));
  auto tokens = TRAIN_TRY(reader.tokens_of(prompt, "the prompt"));
  if (!options.chat && !options.logprobs) {
    print(options.prompt);
  }
  write_one(options, writer, std::move(tokens));
  if (!options.logprobs) {
    print("\n");
  }
  return {};
}

std::string mistake_in(const GenerateOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return fmt::format("--temperature must be 0 or more, not {}", options.temperature);
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return fmt::format("--top-p must be above 0 and at most 1, not {}", options.top_p);
  }
  if (!options.prompts.empty() && !options.prompt.empty()) {
    return "give --prompt or --prompts, not both";
  }
  for (const std::string& stop : options.stops) {
    if (stop.empty()) {
      return "--stop wants a text";
    }
  }
  const bool of_chat =
      !options.system.empty() || !options.chat_template.empty() || !options.date.empty();
  return of_chat && !options.chat ? "--system, --template and --date need --chat" : std::string();
}

void describe_sampling(CommandSyntax& command, GenerateOptions& options) {
  command.number("--temperature", options.temperature, "0: always the likeliest token");
  command.integer("--top-k", options.top_k, "Choose among the K likeliest tokens; 0: all", 0)
      ->default_str("0");
  command.number("--top-p", options.top_p,
                 "Choose among the likeliest tokens that together have this probability");
  command
      .integer("--seed", options.seed, "Seed of the sampling; the same seed gives the same text")
      ->default_str("0");
}

void describe_chat(CommandSyntax& command, GenerateOptions& options) {
  command.app.add_flag("--chat", options.chat,
                       "Wrap prompts as user messages in the model's chat template; without a "
                       "prompt, chat: each line of standard input is a turn");
  command.text("--system", options.system, "System message", "TEXT");
  command.text("--template", options.chat_template,
               "Instead of the model's template: a file, or a built-in one (see render)",
               "NAME|FILE");
  command.date(options.date);
}

}  // namespace

void describe_generate(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("generate", "Generate text with a run's checkpoint or a published model.");
  GenerateOptions& options = command.runs(generate);
  command
      .text("run_directory", options.run_directory,
            "For example runs/quickstart, or the directory of a published model", "RUN_DIRECTORY")
      ->required();
  command
      .integer("--context", options.context,
               "Context of a published model in tokens; a run has its own", 1)
      ->default_str("1024, or its learned positions");
  command.text("--prompt", options.prompt, "Text to continue; by default starts a document",
               "TEXT");
  command.text("--prompts", options.prompts,
               "Prompts, one per line (with --chat also JSON lists of messages); the texts are "
               "printed as JSON lines",
               "FILE");
  command.integer("--batch", options.batch, "Prompts of the file that are continued at a time", 1)
      ->default_str("8");
  command.integer("--tokens", options.tokens, "Most tokens to write", 1)->default_str("200");
  command.app
      .add_option("--stop", options.stops,
                  "Text that ends the writing, and is not shown; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command.app.add_flag("--logprobs", options.logprobs,
                       "Print each token with its log-probability: the bits that training would "
                       "compute for this text, unless --cache is latent");
  command
      .read(
          "--cache",
          [&options](std::string_view text) {
            options.latent_cache = text == "latent";
            return options.latent_cache || text == "expanded";
          },
          "--cache must be expanded or latent",
          "Form in which latent attention keeps tokens: expanded to the keys and values of its "
          "heads, with the bits of training, or as latents, in a fraction of the memory, rounded "
          "otherwise",
          "FORM")
      ->default_str("expanded");
  describe_sampling(command, options);
  describe_chat(command, options);
  command.step(options.step);
  command.app.add_flag("--ema", options.ema,
                       "Write with the running average of the weights (train.ema)");
  command.check([&options] { return mistake_in(options); });
}

}  // namespace train::cli
