#include "base/process/stop_signals.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "checkpoint/index/index.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "run/directory/run_directory.hpp"

namespace train::cli {
namespace {

Status reindex(const ReindexOptions& options) {
  allow_signals();
  const auto run = TRAIN_TRY(open_run(options.run_directory));
  const auto lock = run::lock_run(run.root);
  TRAIN_RETURN_IF_ERROR(lock);
  const auto identity = TRAIN_TRY(checkpoint::read_identity(run.root));
  auto opened =
      TRAIN_TRY(checkpoint::open_index(run.index(), run.placed(), checkpoint::IndexReading::needed,
                                       identity.value_or(checkpoint::RunIdentity())));
  checkpoint::CheckpointIndex& index = opened.index;
  const std::string found = index.report().reason;
  if (!index.report().rebuilt) {
    TRAIN_RETURN_IF_ERROR(index.rebuild("asked for by `checkpoints reindex`"));
  }
  const std::size_t placed = index.committed().size();
  print(fmt::format("index rebuilt: {} checkpoints on disk, {} retired ones still listed{}\n",
                    placed, index.entries().size() - placed,
                    found.empty() ? "" : fmt::format("; the old one was damaged: {}", found)));
  return {};
}

}  // namespace

void describe_checkpoints_reindex(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add("checkpoints reindex",
                                        "Rebuild the index from the checkpoints in the directory.");
  ReindexOptions& options = command.runs(reindex);
  command.run_directory(options.run_directory);
}

}  // namespace train::cli
