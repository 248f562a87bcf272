#include "base/process/stop_signals.hpp"
#include "base/text/units.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"

namespace train::cli {
namespace {

struct Finding {
  std::string text;
  bool bad = false;  ///< Damaged, or unreadable.
};

Result<Finding> examine(const checkpoint::Candidate& candidate) {
  const auto found = TRAIN_TRY(checkpoint::verify_checkpoint(candidate.path));
  const std::string name = candidate.path.filename().string();
  if (found.whole()) {
    return Finding{fmt::format("{}  whole  {}, {} tensors\n", name,
                               format_bytes(size_of(*found.manifest)),
                               found.manifest->tensors.size())};
  }
  if (checkpoint::is_gone(candidate.path)) {
    return Finding{fmt::format("{}  retired meanwhile\n", name)};
  }
  const bool damaged = found.verdict == checkpoint::Verdict::damaged;
  return Finding{
      fmt::format("{}  {}  {}\n", name, damaged ? "DAMAGED" : "cannot be read", found.defect),
      true};
}

Result<int> verify_checkpoints(const CheckpointOptions& options) {
  allow_signals();
  const auto run = TRAIN_TRY(open_run(options.run_directory));
  auto placed = TRAIN_TRY(placed_in(run));
  if (options.step) {
    const auto found = TRAIN_TRY(placed_at(run, *options.step));
    placed = {found};
  }
  int code = kExitFinished;
  for (auto candidate = placed.rbegin(); candidate != placed.rend(); ++candidate) {
    const auto finding = TRAIN_TRY(examine(*candidate));
    print(finding.text);
    code = finding.bad ? kExitFailure : code;
  }
  return code;
}

}  // namespace

void describe_checkpoints_verify(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "checkpoints verify", "Read every byte and compare digests; exit code 1 if one differs.");
  CheckpointOptions& options = command.runs(verify_checkpoints);
  command.run_directory(options.run_directory);
  const auto read = [&options](std::string_view text) {
    options.step = step_in(text);
    return text.empty() || text == "all" || options.step;
  };
  command.read("step", read, "STEP wants a number of 0 or more, \"best\" or \"all\"",
               "All by default", "STEP|best|all");
}

}  // namespace train::cli
