#include <algorithm>
#include <iterator>

#include "base/process/stop_signals.hpp"
#include "checkpoint/load/compare.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;

struct OpenSide {
  fs::path directory;
  checkpoint::Manifest manifest;
};

Result<OpenSide> open_side(const DiffOptions::Side& side) {
  const auto run = TRAIN_TRY(open_run(side.run_directory));
  const auto found = TRAIN_TRY(placed_at(run, side.step));
  auto manifest = TRAIN_TRY(checkpoint::read_manifest(found.path));
  return OpenSide{found.path, std::move(manifest)};
}

std::string difference_text(const checkpoint::CheckpointDifference& difference) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  for (const checkpoint::KeyDifference& key : difference.keys) {
    fmt::format_to(out, "config  {}: {} | {}\n", key.key, key.a.empty() ? "-" : key.a,
                   key.b.empty() ? "-" : key.b);
  }
  std::size_t widest = 0;
  for (const checkpoint::TensorDifference& tensor : difference.differing) {
    widest = std::max(widest, tensor.name.size());
  }
  for (const checkpoint::TensorDifference& tensor : difference.differing) {
    fmt::format_to(out, "tensor  {:<{}}  {}\n", tensor.name, widest,
                   tensor.defect.empty()
                       ? fmt::format("{} of {} elements differ, by {:.9g} at most",
                                     tensor.differing, tensor.elements, tensor.max_abs)
                       : tensor.defect);
  }
  if (difference.same_bits()) {
    fmt::format_to(out, "same bits: {} tensors\n", difference.tensors);
  } else {
    const auto unlike = std::count_if(difference.differing.begin(), difference.differing.end(),
                                      [](const auto& tensor) { return !tensor.defect.empty(); });
    fmt::format_to(out, "different: {} of {} tensors\n", difference.differing.size(),
                   difference.tensors + unlike);
  }
  return fmt::to_string(text);
}

Result<int> diff(const DiffOptions& options) {
  allow_signals();
  const auto a = TRAIN_TRY(open_side(options.a));
  const auto b = TRAIN_TRY(open_side(options.b));
  const auto difference =
      TRAIN_TRY(checkpoint::compare_checkpoints(a.directory, a.manifest, b.directory, b.manifest));
  print(difference_text(difference));
  return difference.same_bits() ? kExitFinished : kExitFailure;
}

/// Parses RUN:STEP; the run's directory may contain colons.
bool read_side(const std::string& word, DiffOptions::Side& side) {
  const std::size_t colon = word.rfind(':');
  const auto step = colon == std::string::npos || colon == 0
                        ? std::nullopt
                        : step_in(std::string_view(word).substr(colon + 1));
  side = {word.substr(0, colon), step.value_or(0)};
  return step.has_value();
}

/// Parses both sides, given as two or three words.
bool read_sides(const std::vector<std::string>& words, DiffOptions& options) {
  if (words.size() == 2) {
    return read_side(words[0], options.a) && read_side(words[1], options.b);
  }
  const auto a = step_in(words[1]);
  const auto b = step_in(words[2]);
  options = {.a = {words[0], a.value_or(0)}, .b = {words[0], b.value_or(0)}};
  return a && b;
}

}  // namespace

void describe_checkpoints_diff(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("checkpoints diff", "Compare two checkpoints; exit code 1 if they differ.");
  DiffOptions& options = command.runs(diff);
  const auto words = std::make_shared<std::vector<std::string>>();
  command.app
      .add_option("checkpoints", *words,
                  "RUN_DIRECTORY STEP STEP, or RUN_A:STEP RUN_B:STEP; STEP may be best")
      ->required()
      ->expected(2, 3)
      ->type_name("");
  command.check([words, &options] {
    return read_sides(*words, options) ? ""
                                       : "wants RUN_DIRECTORY STEP STEP or RUN_A:STEP RUN_B:STEP";
  });
}

}  // namespace train::cli
