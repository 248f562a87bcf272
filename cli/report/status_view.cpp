#include "cli/report/status_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "base/process/host_name.hpp"
#include "base/text/units.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/report/status_schema.hpp"
#include "cli/report/untrusted_json.hpp"
#include "run/report/run_status.hpp"

namespace train::cli {
using namespace run;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kLate_s = 15;        // A busy shared file system may delay an update.
constexpr std::int64_t kClocksApart_s = 2;  // Synchronised clocks agree better than this.
constexpr auto kLookAgain = std::chrono::milliseconds(200);

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

/// Age by the clocks of both machines: negative if the writer's is ahead.
std::int64_t clock_age_of(const StatusWriter& writer, const Surroundings& here) {
  return here.now_unix_s - writer.written_unix_s;
}

std::int64_t age_of(const StatusWriter& writer, const Surroundings& here,
                    const StatusWatch& watch) {
  const std::int64_t watched_s = watch.unchanged(here.now).count();
  if (writer.host != here.host && watch.verdict(here.now) == StatusWatch::Verdict::alive) {
    return watched_s;
  }
  return std::max({std::int64_t{0}, clock_age_of(writer, here), watched_s});
}

/// Removes nulls: a non-finite number (a rate over no time) is written as null, and treated as
/// missing.
void drop_nulls(Json& json) {
  for (auto member = json.begin(); member != json.end();) {
    if (json.is_object() && member->is_null()) {
      member = json.erase(member);
      continue;
    }
    if (!member->is_primitive()) {
      drop_nulls(*member);
    }
    ++member;
  }
}

}  // namespace

Surroundings surroundings_now() {
  return {.host = host_name(),
          .now_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count(),
          .now = std::chrono::steady_clock::now()};
}

void StatusWatch::see(std::string_view file, Time now) {
  const std::size_t content = std::hash<std::string_view>()(file);
  if (content_ == content) {
    return;
  }
  changed_ = content_.has_value();
  content_ = content;
  since_ = now;
}

std::chrono::seconds StatusWatch::unchanged(Time now) const {
  return content_ ? std::chrono::duration_cast<std::chrono::seconds>(now - since_)
                  : std::chrono::seconds(0);
}

StatusWatch::Verdict StatusWatch::verdict(Time now) const {
  if (unchanged(now).count() >= kLate_s) {
    return Verdict::silent;
  }
  return changed_ ? Verdict::alive : Verdict::unknown;
}

RunCondition condition_of(const StatusWriter& writer, const Surroundings& here,
                          const StatusWatch& watch) {
  if (writer.over) {
    return RunCondition::over;
  }
  if (writer.host == here.host) {
    const auto start = process_start(writer.pid);
    return start && *start == writer.process_start ? RunCondition::running : RunCondition::died;
  }
  switch (watch.verdict(here.now)) {
    case StatusWatch::Verdict::alive:
      return RunCondition::running;
    case StatusWatch::Verdict::silent:
      return RunCondition::lost;
    case StatusWatch::Verdict::unknown:
      break;
  }
  return clock_age_of(writer, here) > kLate_s ? RunCondition::lost : RunCondition::running;
}

namespace {

/// Errors: as read_status().
Result<Json> parse_status(const std::string& text, const fs::path& path) {
  auto json = parse_untrusted_json(text, kStatusLimits);
  if (!json || !is_status(*json)) {
    return failure(fmt::format("{}: is not a status of a run{}; remove it", path.string(),
                               json ? "" : fmt::format(" ({})", json.error().message)));
  }
  if ((*json)["version"] != 1) {
    return user_error(fmt::format("{}: has version {}, which is newer than this program",
                                  path.string(), (*json)["version"].dump()));
  }
  drop_nulls(*json);
  if (const std::string fault = status_fault(*json); !fault.empty()) {
    return failure(fmt::format("{}: is damaged ({}); remove it", path.string(), fault));
  }
  return json;
}

}  // namespace

Result<StatusView> read_status(const storage::Within& run, const Surroundings& here,
                               StatusWatch& watch) {
  std::error_code ignored;
  const storage::Within place = run / "status.json";
  const fs::path path = place.path();
  if (!fs::exists(run.path() / "config.toml", ignored)) {
    return not_a_run(run.path());
  }
  if (!fs::exists(path, ignored)) {
    return user_error(fmt::format(
        "{}: no status yet; the run has not started, or an older version ran it", path.string()));
  }
  const auto text = TRAIN_TRY(storage::read_within(place, kStatusLimits.bytes));
  watch.see(text, here.now);
  const auto json = TRAIN_TRY(parse_status(text, path));
  StatusView view{.file = json.dump(-1, ' ', false, Json::error_handler_t::replace),
                  .writer = writer_of(json)};
  view.condition = condition_of(view.writer, here, watch);
  view.age_s = age_of(view.writer, here, watch);
  view.run = run.path();
  return view;
}

Result<StatusView> watch_status(const storage::Within& run, std::chrono::milliseconds patience) {
  StatusWatch watch;
  Surroundings here = surroundings_now();
  const auto deadline = here.now + patience;
  while (true) {
    auto view = TRAIN_TRY(read_status(run, here, watch));
    const bool silent = watch.verdict(here.now) != StatusWatch::Verdict::alive;
    const bool doubtful =
        view.condition == RunCondition::lost ||
        (view.condition == RunCondition::running && view.writer.host != here.host && silent &&
         clock_age_of(view.writer, here) < -kClocksApart_s);
    if (!doubtful) {
      return view;
    }
    if (here.now >= deadline) {
      view.condition = RunCondition::lost;
      return view;
    }
    std::this_thread::sleep_for(kLookAgain);
    here = surroundings_now();
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

std::int64_t integer_at(const Json& json, const char* key) {
  return json.value(key, std::int64_t{0});
}

/// `list` of `json`; empty if missing.
Json list_of(const Json& json, const char* list) { return json.value(list, Json::array()); }

std::string condition_words(const StatusView& view, const Json& json) {
  const std::string launcher =
      fmt::format("process {} of {}", integer_at(json, "pid"), json.value("host", std::string()));
  const std::string age = format_duration(static_cast<double>(view.age_s));
  switch (view.condition) {
    case RunCondition::running:
      return fmt::format("{} ({}, {} ago)", json.value("phase", std::string()), launcher, age);
    case RunCondition::over:
      return fmt::format(
          "ended {}, {} ago, exit code {}: {}", time_text(integer_at(json, "written_unix_s")), age,
          integer_at(json["outcome"], "exit_code"), json["outcome"].value("text", std::string()));
    case RunCondition::died:
      return fmt::format("died without a report: {} is gone; this is from {} ago", launcher, age);
    case RunCondition::lost:
      return fmt::format("died or cut off: {} has written nothing for {}", launcher, age);
  }
  return "unknown";
}

/// "3 s ago": by the clock of the writer, plus the age of what it wrote.
std::string ago(const StatusView& view, const Json& from, const char* key) {
  const std::int64_t age_s = view.writer.written_unix_s - integer_at(from, key) + view.age_s;
  return fmt::format("{} ago", format_duration(static_cast<double>(age_s)));
}

void add_rate(fmt::memory_buffer& text, const StatusView& view, const Json& json,
              std::optional<double> mean_rate) {
  if (view.condition != RunCondition::running) {
    if (mean_rate) {
      add(text, ", {} tokens/s on average", format_count(*mean_rate));
    }
    return;
  }
  if (json.contains("step_unix_s")) {
    add(text, ", {} tokens/s", format_count(json.value("tokens_per_second", 0.0)));
    if (json.contains("rate_window_s")) {
      add(text, " over {} of training, {} left", format_duration(json.value("rate_window_s", 0.0)),
          format_duration(json.value("remaining_s", 0.0)));
    }
    add(text, ", {}", ago(view, json, "step_unix_s"));
  }
}

/// Path of a checkpoint from here. The run names it from the directory where it was started.
std::string saved_place(const StatusView& view, const std::string& directory) {
  const fs::path written = directory;
  const bool below_run = written.parent_path().filename() == "checkpoints";
  return written.is_absolute() || !below_run
             ? directory
             : (view.run / "checkpoints" / written.filename()).string();
}

void add_head(fmt::memory_buffer& text, const StatusView& view, const Json& json,
              std::optional<double> mean_rate) {
  add(text, "run {}: {}\n", json.value("run", std::string()), condition_words(view, json));
  add(text, "  step {} of {}", integer_at(json, "step"), integer_at(json, "steps"));
  add_rate(text, view, json, mean_rate);
  const std::int64_t ranks = integer_at(json, "ranks_count");
  add(text, "; started {}, generation {}, {} {}\n", time_text(integer_at(json, "started_unix_s")),
      integer_at(json, "generation"), ranks, ranks == 1 ? "rank" : "ranks");
  const Json saved = json.value("saved", Json::object());
  if (saved.contains("step")) {
    add(text, "  saved step {} {}: {}\n", integer_at(saved, "step"), ago(view, saved, "unix_s"),
        saved_place(view, saved.value("directory", std::string())));
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
    add(text, "{}{} {}", between, queue.value("what", std::string()), integer_at(queue, length));
    if (queue.contains("limit")) {
      add(text, "/{}", integer_at(queue, "limit"));
    }
    between = ", ";
  }
  if (!queues.empty()) {
    add(text, "\n");
  }
}

void add_rank(fmt::memory_buffer& text, const Json& rank) {
  add(text, "{:>6}  {:>8}  {:<16}  {:>7.1f}  {:<16}  {:.1f} s\n", integer_at(rank, "rank"),
      integer_at(rank, "pid"), rank.value("host", std::string("-")), rank.value("heard_s", 0.0),
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

std::string status_text(const StatusView& view, std::optional<double> mean_rate) {
  const Json json = Json::parse(view.file);
  fmt::memory_buffer text;
  add_head(text, view, json, mean_rate);
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
