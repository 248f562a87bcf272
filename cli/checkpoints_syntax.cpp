#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

using Action = CheckpointsOptions::Action;
using CheckpointsShared = std::shared_ptr<CheckpointsOptions>;

std::optional<std::int64_t> step_in(std::string_view text) {
  std::int64_t step = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), step);
  return code == std::errc() && stop == text.data() + text.size() && step >= 0 ? std::optional(step)
                                                                               : std::nullopt;
}

struct Described {
  CLI::App* command;
  CheckpointsShared options;
};

Described describe(CLI::App& group, const char* name, const char* what, Action action) {
  const auto options = std::make_shared<CheckpointsOptions>();
  options->action = action;
  return {group.add_subcommand(name, what), options};
}

CommandSyntax plain(const Described& described) {
  return {described.command,
          [options = described.options]() -> Result<Command> { return Command(*options); }};
}

CommandSyntax list_syntax(CLI::App& group) {
  const Described list =
      describe(group, "list", "What checkpoints there are, and what is under way.", Action::list);
  add_run_directory(*list.command, list.options->run_directory);
  list.command->add_flag("--all", list.options->all, "Also those that are no longer there");
  list.command->add_flag("--json", list.options->json, "For programs: one JSON object");
  return plain(list);
}

/// [STEP], and `all` where the command takes it.
CommandSyntax with_step(const Described& described, bool takes_all, const char* help) {
  add_run_directory(*described.command, described.options->run_directory);
  const auto word = std::make_shared<std::string>();
  described.command->add_option("step", *word, help)->type_name(takes_all ? "STEP|all" : "STEP");
  return {described.command, [described, takes_all, word]() -> Result<Command> {
            if (!word->empty() && !(takes_all && *word == "all")) {
              described.options->step = step_in(*word);
              if (!described.options->step) {
                return usage_error(*described.command,
                                   fmt::format("STEP wants a number of 0 or more{}, not \"{}\"",
                                               takes_all ? " or \"all\"" : "", *word));
              }
            }
            return Command(*described.options);
          }};
}

CommandSyntax prune_syntax(CLI::App& group) {
  const Described prune =
      describe(group, "prune", "Remove checkpoints that the run's rule, or yours, does not keep.",
               Action::prune);
  CLI::App* command = prune.command;
  add_run_directory(*command, prune.options->run_directory);
  const auto values = std::make_shared<std::array<std::int64_t, 3>>();
  const std::array<const CLI::Option*, 3> given = {
      add_integer(*command, "--keep-last", (*values)[0],
                  "The newest so many, instead of checkpoint.keep_last"),
      add_integer(*command, "--keep-every", (*values)[1],
                  "Every step that is a multiple, instead of checkpoint.keep_every; 0: none"),
      add_integer(*command, "--keep-best", (*values)[2],
                  "So many of lowest loss, instead of checkpoint.keep_best; 0: none")};
  command->add_flag("--dry-run", prune.options->dry_run, "Say what would go, remove nothing");
  return {command, [prune, values, given]() -> Result<Command> {
            const std::array<std::optional<std::int64_t>*, 3> targets = {
                &prune.options->keep_last, &prune.options->keep_every, &prune.options->keep_best};
            for (std::size_t i = 0; i < targets.size(); ++i) {
              const std::int64_t least = i == 0 ? 1 : 0;
              if (given[i]->count() > 0 && (*values)[i] < least) {
                return usage_error(*prune.command,
                                   fmt::format("{} must be {} or more, not {}",
                                               given[i]->get_name(), least, (*values)[i]));
              }
              if (given[i]->count() > 0) {
                *targets[i] = (*values)[i];
              }
            }
            return Command(*prune.options);
          }};
}

/// RUN:STEP; the run's directory may hold colons itself.
std::optional<CheckpointsOptions::Side> side_in(const std::string& word) {
  const std::size_t colon = word.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return std::nullopt;
  }
  const auto step = step_in(std::string_view(word).substr(colon + 1));
  return step ? std::optional(CheckpointsOptions::Side{word.substr(0, colon), *step})
              : std::nullopt;
}

CommandSyntax diff_syntax(CLI::App& group) {
  const Described diff =
      describe(group, "diff", "What differs between two checkpoints; exit code 1 if anything does.",
               Action::diff);
  const auto words = std::make_shared<std::vector<std::string>>();
  diff.command
      ->add_option("checkpoints", *words, "RUN_DIRECTORY STEP STEP, or RUN_A:STEP RUN_B:STEP")
      ->required()
      ->expected(2, 3)
      ->type_name("");
  return {diff.command, [diff, words]() -> Result<Command> {
            std::optional<CheckpointsOptions::Side> a;
            std::optional<CheckpointsOptions::Side> b;
            if (words->size() == 2) {
              a = side_in((*words)[0]);
              b = side_in((*words)[1]);
            } else if (step_in((*words)[1]) && step_in((*words)[2])) {
              a = CheckpointsOptions::Side{(*words)[0], *step_in((*words)[1])};
              b = CheckpointsOptions::Side{(*words)[0], *step_in((*words)[2])};
            }
            if (!a || !b) {
              return usage_error(*diff.command,
                                 "wants RUN_DIRECTORY STEP STEP or RUN_A:STEP RUN_B:STEP");
            }
            diff.options->run_directory = a->run_directory;
            diff.options->sides = {*a, *b};
            return Command(*diff.options);
          }};
}

}  // namespace

void describe_checkpoints(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* group =
      app.add_subcommand("checkpoints", "Look at and look after a run's checkpoints.");
  group->require_subcommand(1);
  syntaxes.push_back(list_syntax(*group));
  syntaxes.push_back(with_step(
      describe(*group, "show", "What a checkpoint holds: facts, files, tensors.", Action::show),
      false, "The newest by default"));
  syntaxes.push_back(with_step(
      describe(*group, "verify", "Read every byte and compare digests; exit code 1 if one differs.",
               Action::verify),
      true, "All by default"));
  syntaxes.push_back(prune_syntax(*group));
  const Described reindex = describe(
      *group, "reindex", "Make the index anew from the checkpoints in place.", Action::reindex);
  add_run_directory(*reindex.command, reindex.options->run_directory);
  syntaxes.push_back(plain(reindex));
  syntaxes.push_back(diff_syntax(*group));
}

}  // namespace train::cli
