#include "actors/head/run_status.hpp"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

namespace train::actors {
namespace {

using Json = nlohmann::ordered_json;

/// In seconds, to the millisecond.
double seconds(std::int64_t nanoseconds) {
  return std::round(static_cast<double>(nanoseconds) * 1e-6) * 1e-3;
}

Json waits_of(const std::vector<ObservedWait>& waits, std::int64_t silence_ns) {
  Json list = Json::array();
  for (const ObservedWait& wait : waits) {
    list.push_back(
        {{"who", wait.who}, {"what", wait.what}, {"for_s", seconds(wait.age_ns + silence_ns)}});
  }
  return list;
}

Json streams_of(const std::vector<ObservedStream>& streams, std::int64_t silence_ns) {
  Json list = Json::array();
  for (const ObservedStream& stream : streams) {
    list.push_back({{"name", stream.name},
                    {"doing", stream.doing},
                    {"waits_for_another", stream.waits},
                    {"for_s", seconds(stream.age_ns + silence_ns)}});
  }
  return list;
}

Json queues_of(const std::vector<ObservedQueue>& queues, const char* length) {
  Json list = Json::array();
  for (const ObservedQueue& queue : queues) {
    Json one = {{"what", queue.what}, {length, queue.length}};
    if (queue.limit >= 0) {
      one["limit"] = queue.limit;
    }
    list.push_back(std::move(one));
  }
  return list;
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

/// Of a moment on the steady clock.
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
    json["step_unix_s"] = unix_s(status, progress.step_ns);
  }
  json["saved"] = saves_of(status);
  if (status.stall) {
    json["stall"] = {{"text", status.stall->text}, {"for_s", seconds(status.stall->age_ns)}};
  }
  if (status.outcome) {
    json["outcome"] = {{"exit_code", status.outcome->exit_code},
                       {"step", status.outcome->step},
                       {"text", status.outcome->text}};
  }
  json["waits"] = waits_of(status.waits, 0);
  json["streams"] = streams_of(status.streams, 0);
  json["credits"] = queues_of(status.credits, "in_use");
  json["ranks_count"] = status.ranks;
  json["ranks"] = Json::array();
  for (std::size_t rank = 0; rank < status.heard.size(); ++rank) {
    json["ranks"].push_back(rank_of(status.heard[rank], rank, status.now_ns));
  }
  // Texts of the world may be anything; what is no UTF-8 is replaced.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace train::actors
