#include "run/report/run_status.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/process/descriptor.hpp"
#include "base/process/host_name.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::run {
namespace {

using Json = nlohmann::ordered_json;

/// Rounds to milliseconds.
double rounded(double seconds) { return std::round(seconds * 1e3) / 1e3; }

double seconds(std::int64_t nanoseconds) {
  return rounded(static_cast<double>(nanoseconds) * 1e-9);
}

template <class Value, class ToJson>
Json list_of(const std::vector<Value>& values, ToJson to_json) {
  Json list = Json::array();
  std::transform(values.begin(), values.end(), std::back_inserter(list), to_json);
  return list;
}

Json waits_of(const std::vector<ObservedWait>& waits, std::int64_t silence_ns) {
  return list_of(waits, [=](const ObservedWait& wait) -> Json {
    return {{"who", wait.who}, {"what", wait.what}, {"for_s", seconds(wait.age_ns + silence_ns)}};
  });
}

Json streams_of(const std::vector<ObservedStream>& streams, std::int64_t silence_ns) {
  return list_of(streams, [=](const ObservedStream& stream) -> Json {
    return {{"name", stream.name},
            {"doing", stream.doing},
            {"waits_for_another", stream.waits},
            {"for_s", seconds(stream.age_ns + silence_ns)}};
  });
}

Json queues_of(const std::vector<ObservedQueue>& queues, const char* length) {
  return list_of(queues, [=](const ObservedQueue& queue) {
    Json one = {{"what", queue.what}, {length, queue.length}};
    if (queue.limit >= 0) {
      one["limit"] = queue.limit;
    }
    return one;
  });
}

Json channels_of(const std::vector<ObservedChannel>& channels, std::int64_t silence_ns) {
  static constexpr std::array<const char*, 4> kPhases = {"not asked for", "waits for a slot",
                                                         "being prepared", "under way"};
  Json list = Json::array();
  for (const ObservedChannel& channel : channels) {
    if (channel.phase >= 0 && static_cast<std::size_t>(channel.phase) < kPhases.size()) {
      list.push_back({{"what", channel.what},
                      {"phase", kPhases.at(static_cast<std::size_t>(channel.phase))},
                      {"for_s", seconds(channel.age_ns + silence_ns)}});
    }
  }
  return list;
}

Json rank_of(const HeardRank& heard, std::size_t rank, std::int64_t now_ns) {
  const std::int64_t silence_ns = now_ns - heard.heard_ns;
  Json json = {{"rank", rank}, {"heard", heard.last.has_value()}, {"heard_s", seconds(silence_ns)}};
  if (!heard.last) {
    return json;
  }
  const RankObserved& last = *heard.last;
  json["pid"] = last.pid;
  json["host"] = last.host;
  json["command"] = last.command;
  json["command_for_s"] = seconds(last.command_age_ns + silence_ns);
  json["waits"] = waits_of(last.waits, silence_ns);
  json["streams"] = streams_of(last.streams, silence_ns);
  json["collectives"] = channels_of(last.channels, silence_ns);
  json["credits"] = queues_of(last.credits, "in_use");
  json["mailboxes"] = queues_of(last.mailboxes, "length");
  return json;
}

/// Converts a time of the steady clock.
std::int64_t unix_s(const RunStatus& status, std::int64_t steady_ns) {
  return status.now_unix_s - (status.now_ns - steady_ns) / 1'000'000'000;
}

Json saves_of(const RunStatus& status) {
  Json saves = Json::object();
  const RunProgress& progress = status.progress;
  if (progress.saved_step >= 0) {
    saves["step"] = progress.saved_step;
    saves["directory"] = progress.saved_directory;
    saves["unix_s"] = unix_s(status, progress.saved_ns);
  }
  if (!progress.save_failure.empty()) {
    saves["failure"] = progress.save_failure;
  }
  return saves;
}

namespace fs = std::filesystem;

std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Status replace(const fs::path& path, const std::string& text) {
  fs::path hidden = path;
  hidden.replace_filename(".status.json.tmp");
  const Descriptor file(::open(hidden.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) {
    return storage::os_error(storage::Access::write, hidden, errno);
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(file.get(), text.data() + at, text.size() - at);
    if (written <= 0) {
      return storage::os_error(storage::Access::write, hidden, written < 0 ? errno : ENOSPC);
    }
    at += static_cast<std::size_t>(written);
  }
  if (::rename(hidden.c_str(), path.c_str()) != 0) {
    return storage::os_error(storage::Access::write, path, errno);
  }
  return {};
}

}  // namespace

std::string to_json(const RunStatus& status) {
  const StatusBase& base = status.base;
  const RunProgress& progress = status.progress;
  Json json = {{"format", "actortrain status"},
               {"version", 1},
               {"run", base.run},
               {"host", base.host},
               {"pid", base.pid},
               {"process_start", base.process_start},
               {"written_unix_s", status.now_unix_s},
               {"started_unix_s", base.started_unix_s},
               {"phase", status.phase},
               {"generation", status.generation},
               {"step", progress.step},
               {"steps", base.steps},
               {"tokens_per_second", std::round(progress.tokens_per_second * 10.0) / 10.0}};
  if (progress.step_ns > 0) {
    json["rate_window_s"] = rounded(progress.window_s);
    json["remaining_s"] = rounded(progress.remaining_s);
    json["step_unix_s"] = unix_s(status, progress.step_ns);
  }
  json["saved"] = saves_of(status);
  if (status.stall) {
    json["stall"] = {{"text", status.stall->text},
                     {"for_s", seconds(status.stall->age_ns)},
                     {"rank", status.stall->rank}};
  }
  if (status.outcome) {
    json["outcome"] = {{"exit_code", status.outcome->exit_code},
                       {"step", status.outcome->step},
                       {"text", status.outcome->text}};
  }
  json["waits"] = waits_of(status.waits, 0);
  json["streams"] = streams_of(status.streams, 0);
  json["credits"] = queues_of(status.credits, "in_use");
  json["memory_plan"] = Json::object();
  for (const engine::MemoryKind& kind : engine::kMemoryKinds) {
    json["memory_plan"][kind.name] = base.memory.*kind.bytes;
  }
  json["ranks_count"] = status.ranks;
  json["ranks"] = Json::array();
  for (std::size_t rank = 0; rank < status.heard.size(); ++rank) {
    json["ranks"].push_back(rank_of(status.heard[rank], rank, status.now_ns));
  }
  // External text may be anything; invalid UTF-8 is replaced.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

StatusFile::StatusFile(const fs::path& run, StatusBase base)
    : path_(status_path(run)), base_(std::move(base)) {}

void StatusFile::set_progress(const RunProgress& progress) {
  const std::lock_guard lock(mutex_);
  progress_ = progress;
}

Status StatusFile::write(RunStatus status) {
  const std::lock_guard lock(mutex_);
  if (over_) {
    return {};
  }
  over_ = status.outcome.has_value();
  status.base = base_;
  if (status.heard.empty() && progress_) {
    status.progress = *progress_;
  }
  status.now_unix_s = unix_now_s();
  return replace(path_, to_json(status));
}

fs::path status_path(const fs::path& run) { return run / "status.json"; }

StatusBase status_base(std::string run, std::int64_t steps, const engine::MemoryPlan& memory) {
  return {.run = std::move(run),
          .host = host_name(),
          .pid = ::getpid(),
          .process_start = process_start(::getpid()).value_or(0),
          .started_unix_s = unix_now_s(),
          .steps = steps,
          .memory = memory};
}

std::optional<std::uint64_t> process_start(std::int64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // The name may contain any character.
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    if (!(fields >> field)) {
      return std::nullopt;
    }
    if (number == 3 && (field == "Z" || field == "X")) {
      return std::nullopt;  // Zombie: ended, and not yet reaped by its parent.
    }
  }
  return std::stoull(field);
}

}  // namespace train::run
