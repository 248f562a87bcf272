#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/process/stop_signals.hpp"
#include "base/text/units.hpp"
#include "checkpoint/save/retention.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"

namespace train::cli {
namespace {

using checkpoint::CheckpointState;
using checkpoint::IndexEntry;
using Json = nlohmann::ordered_json;

bool shown(const IndexEntry& entry, bool all) {
  return all || entry.state != CheckpointState::retired;
}

/// Place of the checkpoint's bytes.
std::string_view place_of(CheckpointState state) {
  switch (state) {
    case CheckpointState::local:
    case CheckpointState::publishing:
      return "local";
    case CheckpointState::committed:
      return "project";
    case CheckpointState::writing:
    case CheckpointState::retired:
      break;
  }
  return "-";
}

std::string json_text(const checkpoint::IndexView& view, const ListOptions& options) {
  Json object = {{"run", options.run_directory},
                 {"source", view.without_index.empty() ? "index" : "manifests"}};
  if (!view.without_index.empty()) {
    object["without_index"] = view.without_index;
  }
  object["checkpoints"] = Json::array();
  const std::vector<std::int64_t> best = checkpoint::best_steps(view.entries);
  for (const IndexEntry& entry : view.entries) {
    if (!shown(entry, options.all)) {
      continue;
    }
    Json item = {{"step", entry.step},
                 {"state", checkpoint::state_name(entry.state)},
                 {"recorded_s", entry.recorded_s}};
    if (!entry.directory.empty()) {
      item["directory"] = entry.directory;
      item["manifest_digest"] = entry.manifest_digest;
      item["size_bytes"] = entry.size_bytes;
      item["ranks"] = entry.ranks;
      item["tokens"] = entry.tokens;
      // JSON has no NaN or infinity: such a loss reads as null, like an unknown one.
      item["validation_loss"] = entry.validation_loss ? Json(*entry.validation_loss) : Json();
      item["best"] = best == std::vector{entry.step};
    }
    item["place"] = place_of(entry.state);
    object["checkpoints"].push_back(std::move(item));
  }
  return object.dump(1) + "\n";
}

void add_row(fmt::memory_buffer& text, const IndexEntry& entry, bool best) {
  const bool known = !entry.directory.empty();
  fmt::format_to(std::back_inserter(text), "{:>10}  {:<10}  {:<19}  {:>10}  {:>5}  {:>8}  ",
                 entry.step, checkpoint::state_name(entry.state), time_text(entry.recorded_s),
                 known && entry.size_bytes > 0 ? format_bytes(entry.size_bytes) : "-",
                 known && entry.ranks > 0 ? fmt::format("{}", entry.ranks) : "-",
                 known && entry.ranks > 0 ? format_count(static_cast<double>(entry.tokens)) : "-");
  if (entry.validation_loss) {
    fmt::format_to(std::back_inserter(text), "{:>9.5f}", *entry.validation_loss);
  } else {
    fmt::format_to(std::back_inserter(text), "{:>9}", "-");
  }
  fmt::format_to(std::back_inserter(text), "  {}{}\n", place_of(entry.state),
                 best ? ", the best" : "");
}

/// Text table, newest last, or one JSON object.
std::string list_text(const checkpoint::IndexView& view, const ListOptions& options) {
  if (options.json) {
    return json_text(view, options);
  }
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text),
                 "{:>10}  {:<10}  {:<19}  {:>10}  {:>5}  {:>8}  {:>9}  {}\n", "STEP", "STATE",
                 "WHEN", "SIZE", "RANKS", "TOKENS", "VAL LOSS", "WHERE");
  const std::vector<std::int64_t> best = checkpoint::best_steps(view.entries);
  for (const IndexEntry& entry : view.entries) {
    if (shown(entry, options.all)) {
      add_row(text, entry, best == std::vector{entry.step});
    }
  }
  return fmt::to_string(text);
}

Status print_list(const ListOptions& options) {
  allow_signals();
  const auto run = TRAIN_TRY(open_run(options.run_directory));
  const auto view = TRAIN_TRY(look(run));
  const auto damaged = TRAIN_TRY(checkpoint::list_damaged(run.placed()));
  const bool any = std::any_of(view.entries.begin(), view.entries.end(),
                               [&](const IndexEntry& entry) { return shown(entry, options.all); });
  if (!any && damaged.empty()) {
    return none_yet(run);
  }
  print(list_text(view, options));
  for (const std::string& name : damaged) {
    if (!options.json) {
      print(fmt::format("set aside: {}\n", name));
    }
  }
  return {};
}

}  // namespace

void describe_checkpoints_list(CommandSyntaxes& commands) {
  CommandSyntax& command =
      commands.add("checkpoints list", "List checkpoints, and saves in progress.");
  ListOptions& options = command.runs(print_list);
  command.run_directory(options.run_directory);
  command.app.add_flag("--all", options.all, "Also list those that were removed");
  command.app.add_flag("--json", options.json, "For programs: one JSON object");
}

}  // namespace train::cli
