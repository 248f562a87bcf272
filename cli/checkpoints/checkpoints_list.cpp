#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/exit_codes.hpp"
#include "base/units.hpp"
#include "checkpoint/layout.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"

namespace train::cli::checkpoints {
namespace {

using checkpoint::CheckpointState;
using checkpoint::IndexEntry;
using Json = nlohmann::ordered_json;

bool shown(const IndexEntry& entry, bool all) {
  return all || entry.state != CheckpointState::retired;
}

/// Where its bytes are.
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

std::string json_text(const checkpoint::IndexView& view, const CheckpointsOptions& options) {
  Json object = {{"run", options.run_directory},
                 {"source", view.without_index.empty() ? "index" : "manifests"}};
  if (!view.without_index.empty()) {
    object["without_index"] = view.without_index;
  }
  object["checkpoints"] = Json::array();
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
      // JSON has no number that is none: such a loss reads as null, like one that is not known.
      item["validation_loss"] = entry.validation_loss ? Json(*entry.validation_loss) : Json();
    }
    item["place"] = place_of(entry.state);
    object["checkpoints"].push_back(std::move(item));
  }
  return object.dump(1) + "\n";
}

void add_row(fmt::memory_buffer& text, const IndexEntry& entry) {
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
  fmt::format_to(std::back_inserter(text), "  {}\n", place_of(entry.state));
}

}  // namespace

std::string time_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts = {};
  ::localtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string list_text(const checkpoint::IndexView& view, const CheckpointsOptions& options) {
  if (options.json) {
    return json_text(view, options);
  }
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text),
                 "{:>10}  {:<10}  {:<19}  {:>10}  {:>5}  {:>8}  {:>9}  {}\n", "STEP", "STATE",
                 "WHEN", "SIZE", "RANKS", "TOKENS", "VAL LOSS", "WHERE");
  for (const IndexEntry& entry : view.entries) {
    if (shown(entry, options.all)) {
      add_row(text, entry);
    }
  }
  return fmt::to_string(text);
}

Result<int> list(const CheckpointsOptions& options) {
  const auto run = open_run(options.run_directory);
  if (!run) {
    return run.error();
  }
  const auto view = look(*run);
  if (!view) {
    return view.error();
  }
  const auto damaged = checkpoint::list_damaged(run->placed());
  if (!damaged) {
    return damaged.error();
  }
  const bool any = std::any_of(view->entries.begin(), view->entries.end(),
                               [&](const IndexEntry& entry) { return shown(entry, options.all); });
  if (!any && damaged->empty()) {
    return none_yet(*run);
  }
  print(list_text(*view, options));
  for (const std::string& name : *damaged) {
    if (!options.json) {
      print(fmt::format("set aside: {}\n", name));
    }
  }
  return kExitFinished;
}

}  // namespace train::cli::checkpoints
