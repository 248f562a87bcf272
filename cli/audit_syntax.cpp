#include <memory>
#include <optional>
#include <utility>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

/// An integer of 1 or more that may be missing.
struct Number {
  const char* name;
  std::int64_t value = 0;
  const CLI::Option* option = nullptr;

  [[nodiscard]] std::optional<std::int64_t> given() const {
    return option->count() > 0 ? std::optional(value) : std::nullopt;
  }
};

struct ReplayWords {
  ReplayOptions options;
  Number from{.name = "--from"};
  Number to{.name = "--to"};
  Number ranks{.name = "--ranks"};
};

Result<Command> finish_replay(const CLI::App& command, const ReplayWords& words) {
  for (const Number* number : {&words.from, &words.to, &words.ranks}) {
    if (number->given().value_or(1) < 1) {
      return usage_error(command,
                         fmt::format("{} must be 1 or more, not {}", number->name, number->value));
    }
  }
  ReplayOptions options = words.options;
  options.from = words.from.given();
  options.to = words.to.given();
  options.ranks = words.ranks.given();
  if (options.from && options.to && *options.from > *options.to) {
    return usage_error(command,
                       fmt::format("--from {} is after --to {}", *options.from, *options.to));
  }
  return Command(std::move(options));
}

CommandSyntax replay_syntax(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "replay", "Compute steps of a run again and compare every bit with its journal.");
  const auto words = std::make_shared<ReplayWords>();
  add_run_directory(*command, words->options.run_directory);
  const auto add = [command](Number& number, const char* what) {
    number.option = add_integer(*command, number.name, number.value, what);
  };
  add(words->from, "First step; by default the one after the newest checkpoint before --to");
  add(words->to, "Last step; by default the last in the journal");
  add(words->ranks, "Ranks that share the work; by default 1");
  add_device(*command, words->options.device);
  return {command, [=] { return finish_replay(*command, *words); }};
}

CommandSyntax verify_syntax(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check a run's journal, index, checkpoints and metrics against each other.");
  const auto options = std::make_shared<VerifyOptions>();
  add_run_directory(*command, options->run_directory);
  return {command, [options]() -> Result<Command> { return Command(*options); }};
}

}  // namespace

void describe_audit(CLI::App& app, CommandSyntaxes& syntaxes) {
  syntaxes.push_back(replay_syntax(app));
  syntaxes.push_back(verify_syntax(app));
}

}  // namespace train::cli
