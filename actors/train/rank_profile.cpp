#include "actors/train/rank_profile.hpp"

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/host_name.hpp"

namespace train::actors {
namespace {

using Json = nlohmann::json;
using Numbers = std::vector<std::int64_t>;

constexpr std::size_t kStretchFields = 8;
constexpr std::size_t kCommandFields = 5;
constexpr std::size_t kCollectiveFields = 10;

/// Texts by number; a literal is looked up by its address once.
class Names {
 public:
  std::uint32_t of(const char* text) {
    const auto known = by_address_.find(text);
    if (known != by_address_.end()) {
      return known->second;
    }
    const auto next = static_cast<std::uint32_t>(texts.size());
    const auto [entry, added] = by_text_.emplace(text, next);
    if (added) {
      texts.emplace_back(text);
    }
    return by_address_[text] = entry->second;
  }

  std::vector<std::string> texts;

 private:
  std::map<const char*, std::uint32_t> by_address_;
  std::map<std::string, std::uint32_t> by_text_;
};

/// The steady clock is the kernel's, counted from its start.
std::string machine_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  return std::getline(file, name) ? name : host_name();
}

std::int64_t wall_offset_ns() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - steady_now_ns();
}

Track track_of(const char* name, const kernels::Stream& stream, Names& names) {
  const kernels::Trace trace = stream.trace();
  Track track{.name = name, .stretches = {}, .dropped = trace.dropped};
  for (const kernels::TraceRecord& record : trace.records) {
    track.stretches.push_back({.name = names.of(record.mark.what),
                               .waited = record.waited,
                               .host = record.host,
                               .step = record.mark.step,
                               .unit = record.mark.unit,
                               .lane = record.mark.lane,
                               .begin_ns = record.begin_ns,
                               .end_ns = record.end_ns});
  }
  return track;
}

Track track_of(const WaitBoard::History& history, Names& names) {
  Track track{.name = history.who, .stretches = {}, .dropped = history.dropped};
  for (const WaitBoard::Past& wait : history.waits) {
    track.stretches.push_back({.name = names.of(wait.what),
                               .waited = true,
                               .host = false,
                               .step = wait.step,
                               .unit = -1,
                               .lane = -1,
                               .begin_ns = wait.begin_ns,
                               .end_ns = wait.end_ns});
  }
  return track;
}

Json to_json(const Track& track) {
  Numbers numbers;
  numbers.reserve(track.stretches.size() * kStretchFields);
  for (const Stretch& one : track.stretches) {
    numbers.insert(numbers.end(), {one.name, one.waited, one.host, one.step, one.unit, one.lane,
                                   one.begin_ns, one.end_ns});
  }
  return {{"name", track.name}, {"dropped", track.dropped}, {"records", std::move(numbers)}};
}

Json to_json(const std::vector<Track>& tracks) {
  Json array = Json::array();
  for (const Track& track : tracks) {
    array.push_back(to_json(track));
  }
  return array;
}

Json to_json(const RankTrace::Kept<CommandRecord>& commands) {
  Numbers numbers;
  for (const CommandRecord& one : commands.records) {
    numbers.insert(numbers.end(),
                   {static_cast<std::int64_t>(one.kind), static_cast<std::int64_t>(one.command),
                    one.step, one.begin_ns, one.end_ns});
  }
  return {{"dropped", commands.dropped}, {"records", std::move(numbers)}};
}

Json to_json(const RankTrace::Kept<CollectiveRecord>& collectives) {
  Numbers numbers;
  for (const CollectiveRecord& one : collectives.records) {
    numbers.insert(
        numbers.end(),
        {static_cast<std::int64_t>(one.channel), static_cast<std::int64_t>(one.kind),
         static_cast<std::int64_t>(one.command), one.index, one.group, one.part, one.requested_ns,
         one.begin_ns, one.end_ns, static_cast<std::int64_t>(one.sent_bytes)});
  }
  return {{"dropped", collectives.dropped}, {"records", std::move(numbers)}};
}

/// The records of a flat array, `fields` numbers each; `make` gets the first of them.
template <class Make>
void each_record(const Json& entry, std::size_t fields, Make make) {
  const auto numbers = entry.at("records").get<Numbers>();
  for (std::size_t at = 0; at + fields <= numbers.size(); at += fields) {
    make(numbers.data() + at);
  }
}

std::vector<Track> tracks_of(const Json& array) {
  std::vector<Track> tracks;
  for (const Json& entry : array) {
    Track& track = tracks.emplace_back();
    track.name = entry.at("name").get<std::string>();
    track.dropped = entry.at("dropped").get<std::uint64_t>();
    each_record(entry, kStretchFields, [&track](const std::int64_t* at) {
      track.stretches.push_back({.name = static_cast<std::uint32_t>(at[0]),
                                 .waited = at[1] != 0,
                                 .host = at[2] != 0,
                                 .step = at[3],
                                 .unit = static_cast<std::int32_t>(at[4]),
                                 .lane = static_cast<std::int32_t>(at[5]),
                                 .begin_ns = at[6],
                                 .end_ns = at[7]});
    });
  }
  return tracks;
}

RankTrace::Kept<CommandRecord> commands_of(const Json& entry) {
  RankTrace::Kept<CommandRecord> kept;
  kept.dropped = entry.at("dropped").get<std::uint64_t>();
  each_record(entry, kCommandFields, [&kept](const std::int64_t* at) {
    kept.records.push_back({.kind = static_cast<engine::CommandKind>(at[0]),
                            .command = static_cast<std::uint64_t>(at[1]),
                            .step = at[2],
                            .begin_ns = at[3],
                            .end_ns = at[4]});
  });
  return kept;
}

RankTrace::Kept<CollectiveRecord> collectives_of(const Json& entry) {
  RankTrace::Kept<CollectiveRecord> kept;
  kept.dropped = entry.at("dropped").get<std::uint64_t>();
  each_record(entry, kCollectiveFields, [&kept](const std::int64_t* at) {
    kept.records.push_back({.channel = static_cast<engine::Channel>(at[0]),
                            .kind = static_cast<engine::CollectiveKind>(at[1]),
                            .command = static_cast<std::uint64_t>(at[2]),
                            .index = static_cast<std::uint32_t>(at[3]),
                            .group = static_cast<std::int32_t>(at[4]),
                            .part = static_cast<std::int32_t>(at[5]),
                            .requested_ns = at[6],
                            .begin_ns = at[7],
                            .end_ns = at[8],
                            .sent_bytes = static_cast<std::uint64_t>(at[9])});
  });
  return kept;
}

}  // namespace

RankProfile collect_profile(const RankRuntime& runtime) {
  TRAIN_CHECK(runtime.trace != nullptr, "rank {} keeps no trace", runtime.rank);
  RankProfile profile{.rank = runtime.rank,
                      .host = host_name(),
                      .machine = machine_name(),
                      .wall_offset_ns = wall_offset_ns(),
                      .names = {},
                      .units = {},
                      .groups = {},
                      .streams = {},
                      .waits = {},
                      .commands = runtime.trace->commands(),
                      .collectives = runtime.trace->collectives()};
  for (std::size_t unit = 0; unit < runtime.engine->unit_count(); ++unit) {
    profile.units.push_back(runtime.engine->unit_name(unit));
  }
  for (const engine::ShardGroup& group : runtime.engine->plan().groups()) {
    profile.groups.push_back(group.name);
  }
  Names names;
  profile.streams = {
      track_of("compute", *runtime.compute, names), track_of("copy", *runtime.copy, names),
      track_of("input", *runtime.input, names), track_of("disk", *runtime.disk, names)};
  if (runtime.reduce) {
    profile.streams.push_back(track_of("reduce", *runtime.reduce, names));
  }
  for (const WaitBoard::History& history : runtime.waits.history(steady_now_ns())) {
    profile.waits.push_back(track_of(history, names));
  }
  profile.names = std::move(names.texts);
  return profile;
}

std::string to_json(const RankProfile& profile) {
  return Json{{"rank", profile.rank},
              {"host", profile.host},
              {"machine", profile.machine},
              {"wall_offset_ns", profile.wall_offset_ns},
              {"names", profile.names},
              {"units", profile.units},
              {"groups", profile.groups},
              {"streams", to_json(profile.streams)},
              {"waits", to_json(profile.waits)},
              {"commands", to_json(profile.commands)},
              {"collectives", to_json(profile.collectives)}}
      .dump();
}

Result<RankProfile> parse_profile(std::string_view text, const std::string& file) {
  try {
    const Json json = Json::parse(text);
    return RankProfile{.rank = json.at("rank").get<std::int64_t>(),
                       .host = json.at("host").get<std::string>(),
                       .machine = json.at("machine").get<std::string>(),
                       .wall_offset_ns = json.at("wall_offset_ns").get<std::int64_t>(),
                       .names = json.at("names").get<std::vector<std::string>>(),
                       .units = json.at("units").get<std::vector<std::string>>(),
                       .groups = json.at("groups").get<std::vector<std::string>>(),
                       .streams = tracks_of(json.at("streams")),
                       .waits = tracks_of(json.at("waits")),
                       .commands = commands_of(json.at("commands")),
                       .collectives = collectives_of(json.at("collectives"))};
  } catch (const Json::exception& error) {
    return failure(fmt::format("{}: is not a rank's profile: {}", file, error.what()));
  }
}

}  // namespace train::actors
