#include "cli/report/status_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

#include "actors/head/report/run_status.hpp"
#include "base/host_name.hpp"
#include "base/units.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLargestStatus = std::uint64_t{1} << 28U;
constexpr std::int64_t kLate_s = 15;  // a busy shared file system may hold an update back

bool is_status(const Json& json) {
  return json.is_object() && json.contains("format") && json["format"] == "actortrain status" &&
         json.contains("version") && json["version"].is_number_integer();
}

StatusWriter writer_of(const Json& json) {
  return {.over = json.contains("outcome"),
          .host = json.value("host", ""),
          .pid = json.value("pid", std::int64_t{0}),
          .process_start = json.value("process_start", std::uint64_t{0}),
          .written_unix_s = json.value("written_unix_s", std::int64_t{0})};
}

std::int64_t age_of(const StatusWriter& writer, const Surroundings& here) {
  return std::max<std::int64_t>(0, here.now_unix_s - writer.written_unix_s);
}

}  // namespace

Surroundings surroundings_now() {
  return {.host = host_name(),
          .now_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count()};
}

RunCondition condition_of(const StatusWriter& writer, const Surroundings& here) {
  if (writer.over) {
    return RunCondition::over;
  }
  if (writer.host != here.host) {
    return age_of(writer, here) > kLate_s ? RunCondition::lost : RunCondition::running;
  }
  const auto start = process_start(writer.pid);
  return start && *start == writer.process_start ? RunCondition::running : RunCondition::died;
}

Result<StatusView> read_status(const fs::path& run, const Surroundings& here) {
  std::error_code ignored;
  const fs::path path = status_path(run);
  if (!fs::exists(run / "config.toml", ignored)) {
    return not_a_run(run);
  }
  if (!fs::exists(path, ignored)) {
    return user_error(fmt::format(
        "{}: no status yet; the run has not started, or an older version ran it", path.string()));
  }
  auto text = storage::read_file(path, kLargestStatus);
  TRAIN_RETURN_IF_ERROR(text);
  const Json json = Json::parse(*text, nullptr, false);
  if (!is_status(json)) {
    return failure(fmt::format("{}: is no status of a run; remove it", path.string()));
  }
  if (json["version"] != 1) {
    return user_error(fmt::format("{}: is of version {}, newer than this program", path.string(),
                                  json["version"].dump()));
  }
  try {
    const StatusWriter writer = writer_of(json);
    StatusView view{.file = std::move(text).value(),
                    .writer = writer,
                    .condition = condition_of(writer, here),
                    .age_s = age_of(writer, here)};
    [[maybe_unused]] const std::string readable = status_text(view);
    return view;
  } catch (const Json::exception&) {
    return failure(fmt::format("{}: is damaged; remove it", path.string()));
  }
}

const char* condition_name(RunCondition condition) {
  static constexpr std::array<const char*, 4> kConditions = {"running", "over", "died", "lost"};
  return kConditions.at(static_cast<std::size_t>(condition));
}

std::string status_json(const StatusView& view) {
  Json json = Json::parse(view.file);
  json["condition"] = condition_name(view.condition);
  json["age_s"] = view.age_s;
  return json.dump(1) + "\n";
}

namespace {

template <class... Arguments>
void add(fmt::memory_buffer& text, fmt::format_string<Arguments...> pattern,
         Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(text), pattern, std::forward<Arguments>(arguments)...);
}

std::int64_t number(const Json& json, const char* key) { return json.value(key, std::int64_t{0}); }

/// `list` of `json`; empty where it has none.
Json list_of(const Json& json, const char* list) { return json.value(list, Json::array()); }

std::string condition_words(const StatusView& view, const Json& json) {
  const std::string launcher =
      fmt::format("process {} of {}", number(json, "pid"), json.value("host", std::string()));
  const std::string age = format_duration(static_cast<double>(view.age_s));
  switch (view.condition) {
    case RunCondition::running:
      return fmt::format("{} ({}, {} ago)", json.value("phase", std::string()), launcher, age);
    case RunCondition::over:
      return fmt::format("over, exit code {}: {}", number(json["outcome"], "exit_code"),
                         json["outcome"].value("text", std::string()));
    case RunCondition::died:
      return fmt::format("died without a word: {} is gone; this is from {} ago", launcher, age);
    case RunCondition::lost:
      return fmt::format("died or cut off: {} has written nothing for {}", launcher, age);
  }
  return "unknown";
}

/// "3 s ago" as seen when the file was written.
std::string ago(const Json& json, const Json& from, const char* key) {
  const std::int64_t then_s = number(from, key);
  return fmt::format("{} ago",
                     format_duration(static_cast<double>(number(json, "written_unix_s") - then_s)));
}

void add_head(fmt::memory_buffer& text, const StatusView& view, const Json& json) {
  add(text, "run {}: {}\n", json.value("run", std::string()), condition_words(view, json));
  add(text, "  step {} of {}", number(json, "step"), number(json, "steps"));
  if (json.contains("step_unix_s")) {
    add(text, ", {} tokens/s", format_count(json.value("tokens_per_second", 0.0)));
    if (json.contains("rate_window_s")) {
      add(text, " over {} of training, {} left", format_duration(json.value("rate_window_s", 0.0)),
          format_duration(json.value("remaining_s", 0.0)));
    }
    add(text, ", {}", ago(json, json, "step_unix_s"));
  }
  add(text, "; started {}, generation {}, {} ranks\n", time_text(number(json, "started_unix_s")),
      number(json, "generation"), number(json, "ranks_count"));
  const Json saved = json.value("saved", Json::object());
  if (saved.contains("step")) {
    add(text, "  saved step {} {}: {}\n", number(saved, "step"), ago(json, saved, "unix_s"),
        saved.value("directory", std::string()));
  }
  if (saved.contains("failure")) {
    add(text, "  the newest save failed: {}\n", saved.value("failure", std::string()));
  }
  if (json.contains("stall")) {
    add(text, "  stalled: {}\n", json["stall"].value("text", std::string()));
  }
}

void add_waits(fmt::memory_buffer& text, const Json& waits, const char* indent) {
  for (const Json& wait : waits) {
    add(text, "{}{:<10} waits for {} for {:.1f} s\n", indent, wait.value("who", std::string()),
        wait.value("what", std::string()), wait.value("for_s", 0.0));
  }
}

void add_streams(fmt::memory_buffer& text, const Json& streams, const char* indent) {
  for (const Json& stream : streams) {
    add(text, "{}{:<10} {} for {:.1f} s{}\n", indent, stream.value("name", std::string()),
        stream.value("doing", std::string()), stream.value("for_s", 0.0),
        stream.value("waits_for_another", false) ? ", waits for another stream" : "");
  }
}

void add_queues(fmt::memory_buffer& text, const Json& queues, const char* length,
                const char* heading) {
  const char* between = heading;
  for (const Json& queue : queues) {
    add(text, "{}{} {}", between, queue.value("what", std::string()), number(queue, length));
    if (queue.contains("limit")) {
      add(text, "/{}", number(queue, "limit"));
    }
    between = ", ";
  }
  if (!queues.empty()) {
    add(text, "\n");
  }
}

void add_rank(fmt::memory_buffer& text, const Json& rank) {
  add(text, "{:>6}  {:>8}  {:<16}  {:>7.1f}  {:<16}  {:.1f} s\n", number(rank, "rank"),
      number(rank, "pid"), rank.value("host", std::string("-")), rank.value("heard_s", 0.0),
      rank.value("command", std::string("-")), rank.value("command_for_s", 0.0));
  constexpr const char* kIndent = "          ";
  add_streams(text, list_of(rank, "streams"), kIndent);
  for (const Json& one : list_of(rank, "collectives")) {
    add(text, "{}{}: {} for {:.1f} s\n", kIndent, one.value("what", std::string()),
        one.value("phase", std::string()), one.value("for_s", 0.0));
  }
  add_waits(text, list_of(rank, "waits"), kIndent);
  add_queues(text, list_of(rank, "credits"), "in_use", "          held: ");
  add_queues(text, list_of(rank, "mailboxes"), "length", "          messages waiting: ");
}

}  // namespace

std::string status_text(const StatusView& view) {
  const Json json = Json::parse(view.file);
  fmt::memory_buffer text;
  add_head(text, view, json);
  if (view.condition == RunCondition::over) {
    return fmt::to_string(text);
  }
  add_waits(text, list_of(json, "waits"), "  ");
  add_streams(text, list_of(json, "streams"), "  ");
  add_queues(text, list_of(json, "credits"), "in_use", "  held: ");
  const Json ranks = list_of(json, "ranks");
  if (!ranks.empty()) {
    add(text, "{:>6}  {:>8}  {:<16}  {:>7}  {:<16}  {}\n", "RANK", "PID", "HOST", "HEARD S",
        "COMMAND", "FOR");
  }
  for (const Json& rank : ranks) {
    add_rank(text, rank);
  }
  return fmt::to_string(text);
}

}  // namespace train::cli
