#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/exit_codes.hpp"
#include "base/units.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/reader.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"

namespace train::cli::checkpoints {
namespace {

namespace fs = std::filesystem;
using checkpoint::Manifest;

std::uint64_t size_of(const Manifest& manifest) {
  std::uint64_t size = 0;
  for (const checkpoint::FileRecord& file : manifest.files) {
    size += file.size_bytes;
  }
  return size;
}

std::string facts_text(const fs::path& directory, const Manifest& manifest,
                       const checkpoint::IndexEntry* entry) {
  fmt::memory_buffer text;
  const auto row = [&text](std::string_view name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<16}  {}\n", name, value);
  };
  const checkpoint::ManifestFields& fields = manifest.fields;
  row("checkpoint", directory.string());
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
  if (entry != nullptr) {
    row("recorded", time_text(entry->recorded_s));
    row("validation loss",
        entry->validation_loss ? fmt::format("{}", *entry->validation_loss) : "-");
  }
  return fmt::to_string(text);
}

/// Files by number, tensors with the rows that each file holds.
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

struct Finding {
  std::string text;
  bool bad = false;  ///< Damaged, or unreadable.
};

Result<Finding> examine(const checkpoint::Candidate& candidate) {
  const auto found = checkpoint::verify_checkpoint(candidate.path);
  if (!found) {
    return found.error();
  }
  const std::string name = candidate.path.filename().string();
  if (found->whole()) {
    return Finding{fmt::format("{}  whole  {}, {} tensors\n", name,
                               format_bytes(size_of(*found->manifest)),
                               found->manifest->tensors.size())};
  }
  if (checkpoint::is_gone(candidate.path)) {
    return Finding{fmt::format("{}  retired meanwhile\n", name)};
  }
  const bool damaged = found->verdict == checkpoint::Verdict::damaged;
  return Finding{
      fmt::format("{}  {}  {}\n", name, damaged ? "DAMAGED" : "cannot be read", found->defect),
      true};
}

}  // namespace

Result<int> show(const CheckpointsOptions& options) {
  const auto run = open_run(options.run_directory);
  if (!run) {
    return run.error();
  }
  const auto placed = checkpoint::list_checkpoints(run->placed());
  if (!placed) {
    return placed.error();
  }
  if (placed->empty()) {
    return none_yet(*run);
  }
  const std::int64_t step = options.step.value_or(placed->front().step);
  const auto directory = directory_of(*run, step);
  if (!directory) {
    return directory.error();
  }
  const auto manifest = checkpoint::read_manifest(*directory);
  if (!manifest) {
    return manifest.error();
  }
  const auto view = look(*run);
  if (!view) {
    return view.error();
  }
  const auto entry = std::find_if(view->entries.begin(), view->entries.end(),
                                  [step](const auto& known) { return known.step == step; });
  print(facts_text(*directory, *manifest, entry == view->entries.end() ? nullptr : &*entry));
  print(tables_text(*manifest));
  return kExitFinished;
}

Result<int> verify(const CheckpointsOptions& options) {
  const auto run = open_run(options.run_directory);
  if (!run) {
    return run.error();
  }
  auto placed = checkpoint::list_checkpoints(run->placed());
  if (!placed) {
    return placed.error();
  }
  if (placed->empty()) {
    return none_yet(*run);
  }
  if (options.step) {
    const auto directory = directory_of(*run, *options.step);
    if (!directory) {
      return directory.error();
    }
    *placed = {{*options.step, *directory}};
  }
  int code = kExitFinished;
  for (auto candidate = placed->rbegin(); candidate != placed->rend(); ++candidate) {
    const auto finding = examine(*candidate);
    if (!finding) {
      return finding.error();
    }
    print(finding->text);
    code = finding->bad ? kExitFailure : code;
  }
  return code;
}

}  // namespace train::cli::checkpoints
