#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"
#include "cli/status_view.hpp"

// A run's status as a table.
namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

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
    add(text, ", {} tokens/s, {}", format_count(json.value("tokens_per_second", 0.0)),
        ago(json, json, "step_unix_s"));
  }
  add(text, "; started {}, generation {}, {} ranks\n",
      checkpoints::time_text(number(json, "started_unix_s")), number(json, "generation"),
      number(json, "ranks_count"));
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
