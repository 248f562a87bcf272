#include <cmath>
#include <memory>
#include <utility>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

CLI::Option* add_step(CLI::App& command, std::int64_t& step) {
  return add_integer(command, "--step", step, "Checkpoint to use; the newest by default");
}

/// `step` as an option that may be missing.
Result<std::optional<std::int64_t>> step_given(const CLI::App& command, const CLI::Option& option,
                                               std::int64_t step) {
  if (step < 0) {
    return usage_error(command, fmt::format("--step must be 0 or more, not {}", step));
  }
  return option.count() > 0 ? std::optional(step) : std::optional<std::int64_t>();
}

Result<Command> finish_eval(const CLI::App& command, EvalOptions options,
                            const CLI::Option& step_option, std::int64_t step) {
  if (options.ranks < 1) {
    return usage_error(command, fmt::format("--ranks must be 1 or more, not {}", options.ranks));
  }
  const auto given = step_given(command, step_option, step);
  if (!given) {
    return given.error();
  }
  if (options.follow && *given) {
    return usage_error(command, "--follow takes every checkpoint, --step one; give one of them");
  }
  options.step = *given;
  return Command(std::move(options));
}

CommandSyntax eval_syntax(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("eval", "Evaluate a run's checkpoint on the validation data.");
  const auto options = std::make_shared<EvalOptions>();
  const auto step = std::make_shared<std::int64_t>(0);
  add_run_directory(*command, options->run_directory);
  const CLI::Option* step_option = add_step(*command, *step);
  add_integer(*command, "--ranks", options->ranks, "Ranks that share the work")->default_str("1");
  command->add_flag("--follow", options->follow,
                    "Evaluate every checkpoint as the run publishes it, until the run ends");
  add_device(*command, options->device);
  return {command, [=] { return finish_eval(*command, *options, *step_option, *step); }};
}

Result<Command> finish_generate(const CLI::App& command, GenerateOptions options,
                                const CLI::Option& step_option, std::int64_t step) {
  if (options.tokens < 1) {
    return usage_error(command, fmt::format("--tokens must be 1 or more, not {}", options.tokens));
  }
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return usage_error(command,
                       fmt::format("--temperature must be 0 or more, not {}", options.temperature));
  }
  if (options.top_k < 0) {
    return usage_error(command, fmt::format("--top-k must be 0 or more, not {}", options.top_k));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return usage_error(command,
                       fmt::format("--top-p must be above 0 and at most 1, not {}", options.top_p));
  }
  const auto given = step_given(command, step_option, step);
  if (!given) {
    return given.error();
  }
  options.step = *given;
  return Command(std::move(options));
}

CommandSyntax generate_syntax(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("generate", "Write text with the weights of a run's checkpoint.");
  const auto options = std::make_shared<GenerateOptions>();
  const auto step = std::make_shared<std::int64_t>(0);
  add_run_directory(*command, options->run_directory);
  command->add_option("--prompt", options->prompt, "Text to continue; none: start a document")
      ->type_name("TEXT");
  add_integer(*command, "--tokens", options->tokens, "Tokens to write")->default_str("200");
  command->add_option("--temperature", options->temperature, "0: always the likeliest token")
      ->capture_default_str();
  add_integer(*command, "--top-k", options->top_k, "Choose among the K likeliest tokens; 0: all")
      ->default_str("0");
  command
      ->add_option("--top-p", options->top_p,
                   "Choose among the likeliest tokens that together have this probability")
      ->capture_default_str();
  add_integer(*command, "--seed", options->seed, "The same seed writes the same text")
      ->default_str("0");
  const CLI::Option* step_option = add_step(*command, *step);
  return {command, [=] { return finish_generate(*command, *options, *step_option, *step); }};
}

CommandSyntax status_syntax(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "status", "How a run is: its progress, its ranks, who waits for whom. Also while it runs.");
  const auto options = std::make_shared<StatusOptions>();
  add_run_directory(*command, options->run_directory);
  command->add_flag("--json", options->json, "One JSON object, for programs");
  return {command, [=]() -> Result<Command> { return Command(*options); }};
}

}  // namespace

void describe_using(CLI::App& app, CommandSyntaxes& syntaxes) {
  syntaxes.push_back(status_syntax(app));
  syntaxes.push_back(eval_syntax(app));
  syntaxes.push_back(generate_syntax(app));
}

}  // namespace train::cli
