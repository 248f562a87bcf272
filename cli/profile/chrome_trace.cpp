#include "cli/profile/run_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace train::cli {
using namespace actors;
namespace {

// Track numbers of a process, by which viewers sort.
constexpr std::int32_t kCommandTrack = 1;
constexpr std::int32_t kStreamTracks = 10;
constexpr std::int32_t kChannelTracks = 20;
constexpr std::int32_t kWaitTracks = 30;

constexpr std::size_t kPieceBytes = std::size_t{1} << 20U;

/// Event to draw; `record` is the index of its record in its track.
struct Event {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint32_t profile = 0;
  std::int32_t track = 0;
  std::size_t record = 0;
};

std::string json_text(const std::string& text) { return nlohmann::json(text).dump(); }

/// Nanoseconds as microseconds, exactly.
std::string micros(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

class ChromeTrace {
 public:
  ChromeTrace(const std::vector<RankProfile>& profiles, const WriteText& write)
      : profiles_(profiles), write_(write) {}

  Status write() {
    gather();
    add("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (const RankProfile& profile : profiles_) {
      name_tracks(profile);
    }
    for (const Event& event : events_) {
      TRAIN_RETURN_IF_ERROR(flush(kPieceBytes));
      draw(event);
    }
    add("\n]}\n");
    return flush(1);
  }

 private:
  void gather() {
    for (std::uint32_t number = 0; number < profiles_.size(); ++number) {
      const RankProfile& profile = profiles_[number];
      const RankProfile& base = profiles_.front();
      const std::int64_t shift_ns =
          profile.machine == base.machine ? 0 : profile.wall_offset_ns - base.wall_offset_ns;
      const auto keep = [&](std::int64_t begin, std::int64_t end, std::int32_t track,
                            std::size_t i) {
        events_.push_back({begin + shift_ns, std::max(begin, end) + shift_ns, number, track, i});
      };
      for (std::size_t i = 0; i < profile.commands.records.size(); ++i) {
        const CommandRecord& one = profile.commands.records[i];
        keep(one.begin_ns, one.end_ns, kCommandTrack, i);
      }
      const auto keep_tracks = [&](const std::vector<Track>& tracks, std::int32_t first) {
        for (std::size_t track = 0; track < tracks.size(); ++track) {
          for (std::size_t i = 0; i < tracks[track].stretches.size(); ++i) {
            const Stretch& one = tracks[track].stretches[i];
            keep(one.begin_ns, one.end_ns, first + static_cast<std::int32_t>(track), i);
          }
        }
      };
      keep_tracks(profile.streams, kStreamTracks);
      keep_tracks(profile.waits, kWaitTracks);
      gather_collectives(number, shift_ns);
    }
    std::stable_sort(events_.begin(), events_.end(),
                     [](const Event& a, const Event& b) { return a.begin_ns < b.begin_ns; });
    if (!events_.empty()) {
      const std::int64_t start_ns = events_.front().begin_ns;
      for (Event& event : events_) {
        event.begin_ns -= start_ns;
        event.end_ns -= start_ns;
      }
    }
  }

  void gather_collectives(std::uint32_t number, std::int64_t shift_ns) {
    std::array<std::int64_t, engine::kChannelCount> free_since{};
    free_since.fill(std::numeric_limits<std::int64_t>::min());
    const auto& records = profiles_[number].collectives.records;
    for (std::size_t i = 0; i < records.size(); ++i) {
      const auto channel = static_cast<std::size_t>(records[i].channel);
      const std::int64_t begin = std::max(records[i].begin_ns, free_since.at(channel));
      const std::int64_t end = std::max(begin, records[i].end_ns);
      free_since.at(channel) = end;
      events_.push_back({begin + shift_ns, end + shift_ns, number,
                         kChannelTracks + static_cast<std::int32_t>(channel), i});
    }
  }

  void name_tracks(const RankProfile& profile) {
    const auto name = [&](const char* what, std::int32_t track, const std::string& text) {
      text_ += fmt::format(
          "{}\n{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}",
          std::exchange(first_, false) ? "" : ",", what, profile.rank, track, json_text(text));
    };
    name("process_name", 0, fmt::format("rank {} ({})", profile.rank, profile.host));
    name("thread_name", kCommandTrack, "commands");
    for (std::size_t i = 0; i < profile.streams.size(); ++i) {
      name("thread_name", kStreamTracks + static_cast<std::int32_t>(i),
           "stream " + profile.streams[i].name);
    }
    for (std::size_t i = 0; i < engine::kChannelCount; ++i) {
      name("thread_name", kChannelTracks + static_cast<std::int32_t>(i),
           fmt::format("channel {}", engine::channel_name(static_cast<engine::Channel>(i))));
    }
    for (std::size_t i = 0; i < profile.waits.size(); ++i) {
      if (!profile.waits[i].stretches.empty()) {
        name("thread_name", kWaitTracks + static_cast<std::int32_t>(i),
             profile.waits[i].name + " waits");
      }
    }
  }

  void draw(const Event& event) {
    const RankProfile& profile = profiles_[event.profile];
    text_ += fmt::format("{}\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},",
                         std::exchange(first_, false) ? "" : ",", profile.rank, event.track,
                         micros(event.begin_ns), micros(event.end_ns - event.begin_ns));
    if (event.track >= kWaitTracks) {
      const auto track = static_cast<std::size_t>(event.track - kWaitTracks);
      draw_stretch(profile, profile.waits[track].stretches[event.record], true);
    } else if (event.track >= kChannelTracks) {
      draw_collective(profile, profile.collectives.records[event.record]);
    } else if (event.track >= kStreamTracks) {
      const auto track = static_cast<std::size_t>(event.track - kStreamTracks);
      draw_stretch(profile, profile.streams[track].stretches[event.record], false);
    } else {
      const CommandRecord& one = profile.commands.records[event.record];
      const std::string step = one.step >= 0 ? fmt::format(" {}", one.step + 1) : std::string();
      text_ += fmt::format("\"cat\":\"command\",\"name\":\"{}{}\",\"args\":{{\"command\":{}}}}}",
                           profile.command_names.at(static_cast<std::size_t>(one.name)), step,
                           one.command);
    }
  }

  void draw_stretch(const RankProfile& profile, const Stretch& stretch, bool of_actor) {
    std::string name = profile.names.at(stretch.name);
    const bool known =
        stretch.unit >= 0 && static_cast<std::size_t>(stretch.unit) < profile.units.size();
    if (known) {
      name += " " + profile.units[static_cast<std::size_t>(stretch.unit)];
    }
    if (stretch.waited && !of_actor) {
      name = "waits for another stream";
    }
    text_ += fmt::format("\"cat\":\"{}\",\"name\":{},\"args\":{{\"step\":{},\"lane\":{}}}}}",
                         stretch.waited ? "wait" : (stretch.host ? "host" : "work"),
                         json_text(name), stretch.step + 1, stretch.lane);
  }

  void draw_collective(const RankProfile& profile, const CollectiveRecord& one) {
    const bool grouped =
        one.group >= 0 && static_cast<std::size_t>(one.group) < profile.groups.size();
    const std::string group =
        grouped ? " " + profile.groups[static_cast<std::size_t>(one.group)] : std::string();
    text_ += fmt::format(
        "\"cat\":\"collective\",\"name\":{},\"args\":{{\"command\":{},\"index\":{},\"part\":{},"
        "\"sent_bytes\":{},\"since_request_us\":{},\"since_handover_us\":{}}}}}",
        json_text(engine::collective_name(one.kind) + group), one.command, one.index, one.part,
        one.sent_bytes, micros(std::max<std::int64_t>(0, one.end_ns - one.requested_ns)),
        micros(std::max<std::int64_t>(0, one.end_ns - one.begin_ns)));
  }

  void add(std::string_view text) { text_ += text; }
  Status flush(std::size_t from_bytes) {
    if (text_.size() < from_bytes) {
      return {};
    }
    const Status written = write_(text_);
    text_.clear();
    return written;
  }

  const std::vector<RankProfile>& profiles_;
  const WriteText& write_;
  std::vector<Event> events_;
  std::string text_;
  bool first_ = true;  // True until the first event.
};

}  // namespace

Status write_chrome_trace(const std::vector<RankProfile>& profiles, const WriteText& write) {
  return ChromeTrace(profiles, write).write();
}

}  // namespace train::cli
