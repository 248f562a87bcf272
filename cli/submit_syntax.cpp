#include <memory>

#include "cli/syntax.hpp"
#include "configs/cluster_profile.hpp"

namespace train::cli {
namespace {

using configs::is_plain_word;

bool is_time(std::string_view text) { return configs::seconds_of_job_time(text).has_value(); }

/// A word for the batch script: what it may be, and how to say so.
struct Word {
  const char* option;
  std::string SubmitOptions::*target;
  const char* type;
  const char* help;
  bool (*holds)(std::string_view);
  const char* wanted;
};

constexpr const char* kPlain = "a word without spaces and quotes";
constexpr Word kWords[] = {
    {"--time", &SubmitOptions::time, "TIME", "Of one job, as 4:00:00 or 1-12", is_time,
     "a time as 4:00:00 or 1-12"},
    {"--account", &SubmitOptions::account, "NAME", "Who pays", is_plain_word, kPlain},
    {"--partition", &SubmitOptions::partition, "NAME", "Where the job goes", is_plain_word, kPlain},
    {"--constraint", &SubmitOptions::constraint, "TEXT", "Properties that nodes must have",
     is_plain_word, kPlain},
    {"--gpus", &SubmitOptions::gpus, "N", "GPUs per node, as 4 or h100:4", is_plain_word, kPlain},
    {"--mem", &SubmitOptions::mem, "SIZE", "Memory per node, as 320G; 0: all of it",
     configs::is_memory, "an amount as 320G"}};

struct SubmitWords {
  CLI::App* command;
  SubmitOptions options = {};
  std::int64_t nodes = 1;
  std::int64_t cpus = 1;
  CLI::Option* nodes_given = nullptr;
  CLI::Option* cpus_given = nullptr;
};

Result<Command> finish_submit(SubmitWords& described) {
  SubmitOptions& options = described.options;
  for (const Word& word : kWords) {
    const std::string& value = options.*word.target;
    if (described.command->get_option(word.option)->count() > 0 && !word.holds(value)) {
      return usage_error(*described.command,
                         fmt::format("{} wants {}, not \"{}\"", word.option, word.wanted, value));
    }
  }
  if (described.nodes < 1 || described.cpus < 1) {
    const bool nodes = described.nodes < 1;
    return usage_error(*described.command,
                       fmt::format("{} must be 1 or more, not {}", nodes ? "--nodes" : "--cpus",
                                   nodes ? described.nodes : described.cpus));
  }
  if (described.nodes_given->count() > 0) {
    options.nodes = described.nodes;
  }
  if (described.cpus_given->count() > 0) {
    options.cpus = described.cpus;
  }
  return Command(options);
}

}  // namespace

void describe_submit(CLI::App& app, CommandSyntaxes& syntaxes) {
  const auto described = std::make_shared<SubmitWords>();
  CLI::App* command = described->command = app.add_subcommand(
      "submit",
      "Write a Slurm batch script that trains to the last step, job after job; submit it.");
  SubmitOptions& options = described->options;
  add_run_file(*command, options.config, options.set);
  described->nodes_given =
      add_integer(*command, "--nodes", described->nodes,
                  "Machines to spread the ranks over, instead of parallel.nodes");
  described->cpus_given = add_integer(*command, "--cpus", described->cpus,
                                      "Cores per node; by default the threads of its ranks");
  for (const Word& word : kWords) {
    command->add_option(word.option, options.*word.target, word.help)->type_name(word.type);
  }
  command
      ->add_option("--profile", options.profile,
                   "What the cluster needs: a file of configs/clusters/, by default the one for "
                   "this host")
      ->type_name("NAME|FILE");
  command->add_flag("--dry-run", options.dry_run,
                    "Check everything and print the script; write and submit nothing");
  command->footer(kExitCodes);
  syntaxes.push_back({command, [described] { return finish_submit(*described); }});
}

}  // namespace train::cli
