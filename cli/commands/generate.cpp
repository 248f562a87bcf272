#include <cmath>
#include <cstdio>

#include "actors/head/run_plan.hpp"
#include "base/signal_watcher.hpp"
#include "cli/checkpoints/trained_model.hpp"
#include "cli/command.hpp"
#include "storage/tokens/prepare.hpp"

namespace train::cli {
using namespace actors;
namespace {

/// Only the bytes tokenizer can turn a prompt into tokens. The data may be gone by now: then the
/// vocabulary tells.
Status require_bytes(const TrainedModel& model) {
  const auto facts = storage::read_dataset_facts(model.config.data.dir);
  const std::string tokenizer = facts ? facts->tokenizer.value_or("") : std::string();
  const bool fits = model.options.shape.vocab_size >= storage::bytes_vocab_size &&
                    model.options.shape.vocab_size < 2 * storage::bytes_vocab_size;
  if (tokenizer == "bytes" || (tokenizer.empty() && fits)) {
    return {};
  }
  return user_error(fmt::format(
      "generate: this model was trained on tokens of \"{}\", and only the bytes tokenizer is built "
      "in; train on data made by `actortrain data prepare --tokenizer bytes`",
      tokenizer.empty() ? "another tokenizer" : tokenizer));
}

/// Continues a prompt with the newest (or named) checkpoint of a run.
Status generate(const GenerateOptions& options) {
  allow_signals();
  const auto model = load_model(options.run_directory, options.step);
  TRAIN_RETURN_IF_ERROR(model);
  TRAIN_RETURN_IF_ERROR(require_bytes(*model));
  print(options.prompt);
  write_text(*model, model->config.runtime.threads,
             {.prompt = options.prompt,
              .tokens = options.tokens,
              .vocab = storage::bytes_vocab_size,
              .sampling = {.temperature = options.temperature,
                           .top_k = options.top_k,
                           .top_p = options.top_p,
                           .seed = options.seed}},
             [](const std::string& byte) {
               print(byte);
               return std::ferror(stdout) == 0;
             });
  print("\n");
  return {};
}

}  // namespace

void describe_generate(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("generate", "Write text with the weights of a run's checkpoint.");
  GenerateOptions& options = command.runs(generate);
  command.run_directory(options.run_directory);
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
