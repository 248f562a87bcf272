#include <algorithm>
#include <iterator>
#include <map>

#include "base/process/stop_signals.hpp"
#include "base/text/units.hpp"
#include "checkpoint/save/retention.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"

namespace train::cli {
namespace {

using checkpoint::Manifest;

std::string facts_text(const checkpoint::Candidate& found, const Manifest& manifest,
                       const std::vector<checkpoint::IndexEntry>& entries) {
  fmt::memory_buffer text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<16}  {}\n", name, value);
  };
  const checkpoint::ManifestFields& fields = manifest.fields;
  row("checkpoint", found.path.string());
  row("step", fmt::format("{}", fields.step));
  row("tokens", fmt::format("{}", fields.tokens));
  row("batch", fmt::format("{} lanes of {} sequences", fields.lanes, fields.micro_batch));
  row("size",
      fmt::format("{} in {} files", format_bytes(size_of(manifest)), manifest.files.size()));
  row("format version", fmt::format("{}", manifest.version));
  row("kernel set", fields.kernel_set);
  row("data fingerprint", fields.data_fingerprint.empty() ? "-" : fields.data_fingerprint);
  row("weights digest", fields.weights_digest.empty() ? "-" : fields.weights_digest);
  row("config digest", manifest.config_digest);
  row("manifest digest", manifest.text_digest);
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&found](const auto& known) { return known.step == found.step; });
  if (entry != entries.end()) {
    const bool best = checkpoint::best_steps(entries) == std::vector{found.step};
    row("recorded", time_text(entry->recorded_s));
    row("validation loss", entry->validation_loss ? fmt::format("{}{}", *entry->validation_loss,
                                                                best ? ", the best" : "")
                                                  : "-");
  }
  return fmt::to_string(text);
}

/// Files by number, and tensors with the rows in each file.
std::string tables_text(const Manifest& manifest) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  std::map<std::string, std::size_t> numbers;
  fmt::format_to(out, "\n{:>5}  {:<36}  {:>10}  {}\n", "FILE", "NAME", "SIZE", "DIGEST");
  for (const checkpoint::FileRecord& file : manifest.files) {
    numbers.emplace(file.name, numbers.size());
    fmt::format_to(out, "{:>5}  {:<36}  {:>10}  {}\n", numbers[file.name], file.name,
                   format_bytes(file.size_bytes), file.digest);
  }
  std::size_t widest = 6;
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {
    widest = std::max(widest, tensor.name.size());
  }
  fmt::format_to(out, "\n{:<{}}  {:<5}  {:<16}  {}\n", "TENSOR", widest, "DTYPE", "SHAPE",
                 "FILE:FIRST ROW+ROWS");
  std::string previous;
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {
    const std::string rows =
        fmt::format("{}:{}+{}", numbers[tensor.file], tensor.first_row, tensor.rows);
    if (tensor.name == previous) {
      fmt::format_to(out, " {}", rows);
      continue;
    }
    fmt::format_to(out, "{}{:<{}}  {:<5}  {:<16}  {}", previous.empty() ? "" : "\n", tensor.name,
                   widest, tensor.dtype, fmt::format("[{}]", fmt::join(tensor.shape, ", ")), rows);
    previous = tensor.name;
  }
  fmt::format_to(out, "\n");
  return fmt::to_string(text);
}

Status print_checkpoint(const CheckpointOptions& options) {
  allow_signals();
  const auto run = TRAIN_TRY(open_run(options.run_directory));
  const auto placed = TRAIN_TRY(placed_in(run));
  const auto found = TRAIN_TRY(placed_at(run, options.step.value_or(placed.front().step)));
  const auto manifest = TRAIN_TRY(checkpoint::read_manifest(found.path));
  const auto view = TRAIN_TRY(look(run));
  print(facts_text(found, manifest, view.entries));
  print(tables_text(manifest));
  return {};
}

}  // namespace

void describe_checkpoints_show(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("checkpoints show", "Show the facts, files and tensors of a checkpoint.");
  CheckpointOptions& options = command.runs(print_checkpoint);
  command.run_directory(options.run_directory);
  const auto read = [&options](std::string_view text) {
    options.step = step_in(text);
    return text.empty() || options.step;
  };
  command.read("step", read, "STEP wants a number of 0 or more or \"best\"",
               "The newest by default", "STEP|best");
}

}  // namespace train::cli
