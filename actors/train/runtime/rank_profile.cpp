#include "actors/train/runtime/rank_profile.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "actors/messages/fields.hpp"
#include "base/process/host_name.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::actors {
namespace {

using ProfileJson = nlohmann::json;
using Numbers = std::vector<std::int64_t>;

/// Numbered texts; the address of a literal is looked up once.
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

/// Identity of the steady clock, which starts at the kernel's boot: the boot, else the host name.
std::string machine_name() {
  const std::string boot = boot_id();
  return boot.empty() ? host_name() : boot;
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

Track track_of(const WaitTable::History& history, Names& names) {
  Track track{.name = history.who, .stretches = {}, .dropped = history.dropped};
  for (const WaitTable::Past& wait : history.waits) {
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

/// Flattens records into one array of their fields' numbers.
template <class Record>
Numbers numbers_of(const std::vector<Record>& records) {
  Numbers numbers;
  numbers.reserve(records.size() * field_count<Record>());
  for (const Record& record : records) {
    with_fields(record, [&numbers](const auto&... fields) {
      (numbers.push_back(static_cast<std::int64_t>(fields)), ...);
    });
  }
  return numbers;
}

template <class Record>
std::vector<Record> records_of(const ProfileJson& entry) {
  const auto numbers = entry.at("records").get<Numbers>();
  std::vector<Record> records(numbers.size() / field_count<Record>());
  auto next = numbers.begin();
  for (Record& record : records) {
    with_fields(record, [&next]<class... Fields>(Fields&... fields) {
      ((fields = static_cast<Fields>(*next++)), ...);
    });
  }
  return records;
}

ProfileJson to_json(const std::vector<Track>& tracks) {
  ProfileJson array = ProfileJson::array();
  for (const Track& track : tracks) {
    array.push_back({{"name", track.name},
                     {"dropped", track.dropped},
                     {"records", numbers_of(track.stretches)}});
  }
  return array;
}

std::vector<Track> tracks_of(const ProfileJson& array) {
  std::vector<Track> tracks;
  for (const ProfileJson& entry : array) {
    tracks.push_back({.name = entry.at("name").get<std::string>(),
                      .stretches = records_of<Stretch>(entry),
                      .dropped = entry.at("dropped").get<std::uint64_t>()});
  }
  return tracks;
}

template <class Record>
ProfileJson to_json(const RankTrace::Kept<Record>& kept) {
  return {{"dropped", kept.dropped}, {"records", numbers_of(kept.records)}};
}

template <class Record>
RankTrace::Kept<Record> kept_of(const ProfileJson& entry) {
  return {.records = records_of<Record>(entry),
          .dropped = entry.at("dropped").get<std::uint64_t>()};
}

}  // namespace

RankProfile collect_profile(const RankRuntime& runtime) {
  TRAIN_CHECK(runtime.trace != nullptr, "rank {} keeps no trace", runtime.rank);
  RankProfile profile{.rank = runtime.rank,
                      .host = host_name(),
                      .machine = machine_name(),
                      .wall_offset_ns = wall_offset_ns(),
                      .names = {},
                      .command_names = {},
                      .units = {},
                      .groups = {},
                      .streams = {},
                      .waits = {},
                      .commands = runtime.trace->commands(),
                      .collectives = runtime.trace->collectives()};
  for (const engine::PassPlan& pass : runtime.engine->rank_plan().passes().all()) {
    profile.command_names.emplace_back(pass.name.trace);
  }
  profile.command_names.emplace_back(engine::kSnapshotName.trace);
  profile.command_names.emplace_back(engine::kStopName.trace);
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
  for (const WaitTable::History& history : runtime.waits.history(steady_now_ns())) {
    profile.waits.push_back(track_of(history, names));
  }
  profile.names = std::move(names.texts);
  return profile;
}

std::string to_json(const RankProfile& profile) {
  return ProfileJson{{"rank", profile.rank},
                     {"host", profile.host},
                     {"machine", profile.machine},
                     {"wall_offset_ns", profile.wall_offset_ns},
                     {"names", profile.names},
                     {"command_names", profile.command_names},
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
    const ProfileJson json = ProfileJson::parse(text);
    return RankProfile{.rank = json.at("rank").get<std::int64_t>(),
                       .host = json.at("host").get<std::string>(),
                       .machine = json.at("machine").get<std::string>(),
                       .wall_offset_ns = json.at("wall_offset_ns").get<std::int64_t>(),
                       .names = json.at("names").get<std::vector<std::string>>(),
                       .command_names = json.at("command_names").get<std::vector<std::string>>(),
                       .units = json.at("units").get<std::vector<std::string>>(),
                       .groups = json.at("groups").get<std::vector<std::string>>(),
                       .streams = tracks_of(json.at("streams")),
                       .waits = tracks_of(json.at("waits")),
                       .commands = kept_of<CommandRecord>(json.at("commands")),
                       .collectives = kept_of<CollectiveRecord>(json.at("collectives"))};
  } catch (const ProfileJson::exception& error) {
    return failure(fmt::format("{}: is not a rank's profile: {}", file, error.what()));
  }
}

std::filesystem::path rank_profile_path(const std::filesystem::path& directory, std::int64_t rank) {
  return directory / fmt::format("rank-{}.json", rank);
}

Status write_rank_profile(const std::filesystem::path& directory, const RankRuntime& runtime) {
  return storage::write_file_atomically(rank_profile_path(directory, runtime.rank),
                                        to_json(collect_profile(runtime)));
}

}  // namespace train::actors
