#include <cmath>
#include <cstdio>
#include <filesystem>

#include "actors/head/run_plan.hpp"
#include "base/signal_watcher.hpp"
#include "cli/checkpoints/text_codec.hpp"
#include "cli/checkpoints/trained_model.hpp"
#include "cli/command.hpp"

namespace train::cli {
using namespace actors;
namespace {

/// What writes, and what turns its tokens into text.
struct Writer {
  TrainedModel model;
  TextCodec codec;
};

Result<Writer> open_writer(const GenerateOptions& options) {
  const std::filesystem::path path(options.run_directory);
  std::error_code ignored;
  if (std::filesystem::exists(path / "config.json", ignored) &&
      !std::filesystem::exists(path / "config.toml", ignored)) {
    auto model = load_model_directory(path, options.context);
    TRAIN_RETURN_IF_ERROR(model);
    auto codec = TextCodec::of_directory(path, model->options.model.vocab_size);
    TRAIN_RETURN_IF_ERROR(codec);
    return Writer{std::move(model).value(), std::move(codec).value()};
  }
  auto model = load_model(path, options.step);
  TRAIN_RETURN_IF_ERROR(model);
  auto codec = TextCodec::of_run(path, model->config, model->options.model.vocab_size);
  TRAIN_RETURN_IF_ERROR(codec);
  return Writer{std::move(model).value(), std::move(codec).value()};
}

/// Continues a prompt with the newest (or named) checkpoint of a run, or a published model.
Status generate(const GenerateOptions& options) {
  allow_signals();
  const auto writer = open_writer(options);
  TRAIN_RETURN_IF_ERROR(writer);
  print(options.prompt);
  TRAIN_RETURN_IF_ERROR(write_text(writer->model, writer->codec,
                                   writer->model.config.runtime.threads,
                                   {.prompt = options.prompt,
                                    .tokens = options.tokens,
                                    .sampling = {.temperature = options.temperature,
                                                 .top_k = options.top_k,
                                                 .top_p = options.top_p,
                                                 .seed = options.seed}},
                                   [](const std::string& piece) {
                                     print(piece);
                                     return std::ferror(stdout) == 0;
                                   }));
  print("\n");
  return {};
}

}  // namespace

void describe_generate(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("generate", "Write text with a run's checkpoint, or a published model.");
  GenerateOptions& options = command.runs(generate);
  command
      .text("run_directory", options.run_directory,
            "For example runs/quickstart, or the directory of a published model", "RUN_DIRECTORY")
      ->required();
  command
      .integer("--context", options.context,
               "Longest text that a published model sees, in tokens; a run has its own", 1)
      ->default_str("1024");
  command.text("--prompt", options.prompt, "Text to continue; none: start a document", "TEXT");
  command.integer("--tokens", options.tokens, "Tokens to write", 1)->default_str("200");
  command.app.add_option("--temperature", options.temperature, "0: always the likeliest token")
      ->capture_default_str();
  command.integer("--top-k", options.top_k, "Choose among the K likeliest tokens; 0: all", 0)
      ->default_str("0");
  command.app
      .add_option("--top-p", options.top_p,
                  "Choose among the likeliest tokens that together have this probability")
      ->capture_default_str();
  command.integer("--seed", options.seed, "The same seed writes the same text")->default_str("0");
  command.step(options.step);
  command.check([&options] {
    if (!std::isfinite(options.temperature) || options.temperature < 0) {
      return fmt::format("--temperature must be 0 or more, not {}", options.temperature);
    }
    return options.top_p > 0 && options.top_p <= 1
               ? std::string()
               : fmt::format("--top-p must be above 0 and at most 1, not {}", options.top_p);
  });
}

}  // namespace train::cli
