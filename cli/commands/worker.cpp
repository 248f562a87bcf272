#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/recovery/worker_rank.hpp"
#include "cli/command.hpp"

namespace train::cli {

/// Runs one rank of a run whose launcher started this process.
void describe_worker(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add("worker", "One rank of a run.");
  actors::WorkerOptions& options = command.runs(actors::serve_rank);
  command.app.group("");  // Hidden: only the launcher uses it.
  command.app.footer(kExitCodes);
  const auto head = [&options](std::string_view text) {
    options.head = text;
    return actors::parse_endpoint(options.head).ok();
  };
  command
      .read("--head", head, "--head wants HOST:PORT", "Where the run's head listens", "HOST:PORT")
      ->required();
  command.integer("--rank", options.rank, "Which rank", 0)->required();
  command.text("--credentials", options.credentials, "What the head knows its ranks by", "DIR")
      ->required();
  command.integer("--memory", options.memory, "Where its snapshots in memory go");
  command.integer("--memory-before", options.memory_before,
                  "Snapshots of an earlier number of ranks");
  command.integer("--memory-buddy-before", options.memory_buddy_before,
                  "And those of the node before");
}

}  // namespace train::cli
