#include <memory>
#include <string_view>
#include <utility>

#include "cli/syntax.hpp"

namespace train::cli {
namespace {

CommandSyntax run_syntax(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("run", "Train what a run file describes, or resume it where it stopped.");
  const auto options = std::make_shared<RunOptions>();
  const auto nodes = std::make_shared<std::int64_t>(1);
  add_run_file(*command, options->config, options->set);
  command->add_flag("--dry-run", options->dry_run,
                    "Check the run file and the data, show the plan, train nothing");
  command->add_flag("--fresh", options->fresh,
                    "Start over: set an earlier run of this name aside instead of resuming it");
  command->add_flag("--accept-data", options->accept_data,
                    "Resume although data.dir holds other tokens than the run was trained on");
  command->add_flag("--profile", options->profile,
                    "Record what every actor did when, in the run's directory");
  const CLI::Option* given = add_integer(
      *command, "--nodes", *nodes, "Machines to spread the ranks over, instead of parallel.nodes");
  command->footer(kExitCodes);
  return {command, [command, options, nodes, given]() -> Result<Command> {
            if (*nodes < 1) {
              return usage_error(*command,
                                 fmt::format("--nodes must be 1 or more, not {}", *nodes));
            }
            if (given->count() > 0) {
              options->nodes = *nodes;
            }
            return Command(*options);
          }};
}

CommandSyntax plan_syntax(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan", "Show what each rank of a run would keep, compute and send; start nothing.");
  const auto options = std::make_shared<PlanOptions>();
  add_run_file(*command, options->config, options->set);
  return {command, [options]() -> Result<Command> { return Command(*options); }};
}

Result<Command> finish_worker(const CLI::App& command, const WorkerOptions& options) {
  if (options.rank < 0) {
    return usage_error(command, fmt::format("--rank must be 0 or more, not {}", options.rank));
  }
  const std::size_t colon = options.head.rfind(':');
  std::uint16_t port = 0;
  const std::string_view digits =
      colon == std::string::npos ? "" : std::string_view(options.head).substr(colon + 1);
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (colon == std::string::npos || colon == 0 || code != std::errc() || port == 0 ||
      stop != digits.data() + digits.size()) {
    return usage_error(command, fmt::format("--head wants HOST:PORT, not \"{}\"", options.head));
  }
  return Command(options);
}

}  // namespace

void describe_training(CLI::App& app, CommandSyntaxes& syntaxes) {
  syntaxes.push_back(run_syntax(app));
  syntaxes.push_back(plan_syntax(app));
}

void describe_worker(CLI::App& app, CommandSyntaxes& syntaxes) {
  CLI::App* command = app.add_subcommand("worker", "One rank of a run.");
  const auto options = std::make_shared<WorkerOptions>();
  command->group("");  // Hidden: only the launcher has use for it.
  command->add_option("--head", options->head, "Where the run's head listens")
      ->required()
      ->type_name("HOST:PORT");
  add_integer(*command, "--rank", options->rank, "Which rank")->required();
  command->add_option("--credentials", options->credentials, "What the head knows its ranks by")
      ->required()
      ->type_name("DIR");
  add_integer(*command, "--memory", options->memory, "Where its snapshots in memory go");
  add_integer(*command, "--memory-before", options->memory_before,
              "Snapshots of an earlier number of ranks");
  add_integer(*command, "--memory-buddy-before", options->memory_buddy_before,
              "And those of the node before");
  syntaxes.push_back({command, [command, options] { return finish_worker(*command, *options); }});
}

}  // namespace train::cli
