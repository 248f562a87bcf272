#include "cli/profile/run_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "actors/train/runtime/rank_profile.hpp"
#include "base/text/units.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace actors;

TimeSpans united(TimeSpans spans) {
  std::sort(spans.begin(), spans.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.begin_ns < b.begin_ns; });
  TimeSpans result;
  for (const TimeSpan& span : spans) {
    if (span.size_ns() <= 0) {
      continue;
    }
    if (result.empty() || span.begin_ns > result.back().end_ns) {
      result.push_back(span);
    } else {
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
    }
  }
  return result;
}

TimeSpans common(const TimeSpans& a, const TimeSpans& b) {
  TimeSpans result;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const TimeSpan both{std::max(a[i].begin_ns, b[j].begin_ns), std::min(a[i].end_ns, b[j].end_ns)};
    if (both.size_ns() > 0) {
      result.push_back(both);
    }
    if (a[i].end_ns < b[j].end_ns) {
      ++i;
    } else {
      ++j;
    }
  }
  return result;
}

TimeSpans without(const TimeSpans& a, const TimeSpans& b) {
  TimeSpans result;
  std::size_t j = 0;
  for (const TimeSpan& span : a) {
    std::int64_t begin = span.begin_ns;
    while (j < b.size() && b[j].end_ns <= begin) {
      ++j;
    }
    for (std::size_t k = j; k < b.size() && b[k].begin_ns < span.end_ns; ++k) {
      if (b[k].begin_ns > begin) {
        result.push_back({begin, b[k].begin_ns});
      }
      begin = std::max(begin, b[k].end_ns);
    }
    if (begin < span.end_ns) {
      result.push_back({begin, span.end_ns});
    }
  }
  return result;
}

std::int64_t total_ns(const TimeSpans& spans) {
  std::int64_t total = 0;
  for (const TimeSpan& span : spans) {
    total += span.size_ns();
  }
  return total;
}

namespace {

using KernelKey = std::pair<std::string, std::string>;  // Mark and unit.

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

/// Time since which no record is missing.
std::int64_t complete_since(const RankProfile& profile) {
  std::int64_t since = 0;
  const Track& compute = profile.streams.front();
  if (compute.dropped > 0) {
    since = std::max(since, compute.stretches.front().begin_ns);
  }
  if (profile.collectives.dropped > 0) {
    since = std::max(since, profile.collectives.records.front().end_ns);
  }
  return since;
}

struct MeasuredSteps {
  std::vector<CommandRecord> steps;
  std::int64_t left_out = 0;
};

MeasuredSteps measured_steps(const RankProfile& profile) {
  const std::int64_t since = complete_since(profile);
  MeasuredSteps measured;
  for (const CommandRecord& command : profile.commands.records) {
    const std::string& name = profile.command_names.at(static_cast<std::size_t>(command.name));
    if (name == engine::kTrainStep.name.trace && command.begin_ns >= since &&
        command.end_ns > command.begin_ns) {
      measured.steps.push_back(command);
    }
  }
  // If records were dropped, the first steps are among them.
  if (since == 0 && std::ssize(measured.steps) >= 2 * kFirstSteps) {
    measured.steps.erase(measured.steps.begin(), measured.steps.begin() + kFirstSteps);
    measured.left_out = kFirstSteps;
  }
  return measured;
}

TimeSpans busy_of(const RankProfile& profile) {
  TimeSpans spans;
  for (const Stretch& one : profile.streams.front().stretches) {
    if (one.worked()) {
      spans.push_back({one.begin_ns, one.end_ns});
    }
  }
  return united(std::move(spans));
}

TimeSpans communication_of(const RankProfile& profile) {
  TimeSpans spans;
  for (const CollectiveRecord& one : profile.collectives.records) {
    spans.push_back({one.requested_ns, one.end_ns});
  }
  return united(std::move(spans));
}

double sent_in_steps(const RankProfile& profile) {
  std::set<std::uint64_t> commands;
  for (const CommandRecord& command : measured_steps(profile).steps) {
    commands.insert(command.command);
  }
  double bytes = 0.0;
  for (const CollectiveRecord& one : profile.collectives.records) {
    bytes += commands.contains(one.command) ? static_cast<double>(one.sent_bytes) : 0.0;
  }
  return bytes;
}

/// "forward block 3"; work outside all units has only its mark.
std::string work_name(const RankProfile& profile, const Stretch& work) {
  const std::string& what = profile.names.at(work.name);
  const bool of_unit = work.unit >= 0 && static_cast<std::size_t>(work.unit) < profile.units.size();
  return of_unit ? what + " " + profile.units[static_cast<std::size_t>(work.unit)] : what;
}

/// Adds the longest idle time of the stream, with the work before and after.
void add_longest_gap(const RankProfile& profile, const TimeSpans& idle, RankSummary& summary) {
  const auto longest = std::max_element(
      idle.begin(), idle.end(),
      [](const TimeSpan& a, const TimeSpan& b) { return a.size_ns() < b.size_ns(); });
  if (longest == idle.end()) {
    return;
  }
  summary.longest_gap_seconds = seconds(longest->size_ns());
  for (const Stretch& work : profile.streams.front().stretches) {
    if (!work.worked()) {
      continue;
    }
    if (work.begin_ns >= longest->end_ns) {
      summary.gap_before = work_name(profile, work);
      return;
    }
    summary.gap_after = work_name(profile, work);
  }
}

RankSummary summarize_rank(const RankProfile& profile) {
  const TimeSpans steps = training_steps(profile);
  RankSummary summary;
  summary.rank = profile.rank;
  summary.steps = std::ssize(steps);
  summary.steps_left_out = measured_steps(profile).left_out;
  if (steps.empty()) {
    return summary;
  }
  const double count = static_cast<double>(steps.size());
  const TimeSpans busy = common(united(steps), busy_of(profile));
  const TimeSpans idle = without(united(steps), busy);
  const TimeSpans communication = communication_of(profile);
  summary.step_seconds = seconds(total_ns(steps)) / count;
  summary.busy_seconds = seconds(total_ns(busy)) / count;
  summary.waiting_seconds = seconds(total_ns(idle)) / count;
  summary.overlapped_seconds = seconds(total_ns(common(communication, busy))) / count;
  summary.exposed_seconds = seconds(total_ns(common(communication, idle))) / count;
  for (const TimeSpan& gap : idle) {
    summary.gaps += gap.size_ns() > kLongGap_ns ? 1.0 / count : 0.0;
  }
  add_longest_gap(profile, idle, summary);
  summary.sent_bytes = sent_in_steps(profile) / count;
  return summary;
}

/// "block" of "block 3".
std::string unit_kind(const RankProfile& profile, std::int32_t unit) {
  if (unit < 0 || static_cast<std::size_t>(unit) >= profile.units.size()) {
    return {};
  }
  const std::string& name = profile.units[static_cast<std::size_t>(unit)];
  const auto end = name.find_last_not_of("0123456789 ");
  return name.substr(0, end == std::string::npos ? 0 : end + 1);
}

/// Adds the time of each kernel inside the rank's steps.
void add_kernels(const RankProfile& profile, std::map<KernelKey, std::int64_t>& kernels) {
  const TimeSpans steps = united(training_steps(profile));
  std::size_t step = 0;
  for (const Stretch& one : profile.streams.front().stretches) {
    while (step < steps.size() && steps[step].end_ns <= one.begin_ns) {
      ++step;
    }
    // The end of a step and the begin of the next may be one record.
    for (std::size_t at = step; at < steps.size() && steps[at].begin_ns < one.end_ns; ++at) {
      const std::int64_t begin = std::max(one.begin_ns, steps[at].begin_ns);
      const std::int64_t end = std::min(one.end_ns, steps[at].end_ns);
      if (one.worked() && begin < end) {
        kernels[{profile.names.at(one.name), unit_kind(profile, one.unit)}] += end - begin;
      }
    }
  }
}

std::vector<KernelSummary> summarize_kernels(const std::vector<RankProfile>& profiles) {
  std::map<KernelKey, std::int64_t> kernels;
  std::int64_t total = 0;
  double count = 0.0;
  for (const RankProfile& profile : profiles) {
    const TimeSpans steps = training_steps(profile);
    total += total_ns(steps);
    count += static_cast<double>(steps.size());
    add_kernels(profile, kernels);
  }
  std::vector<KernelSummary> summaries;
  summaries.reserve(kernels.size());
  for (const auto& [key, ns] : kernels) {
    summaries.push_back({.what = key.first,
                         .unit = key.second,
                         .seconds = seconds(ns) / count,
                         .share = static_cast<double>(ns) / static_cast<double>(total)});
  }
  std::stable_sort(
      summaries.begin(), summaries.end(),
      [](const KernelSummary& a, const KernelSummary& b) { return a.share > b.share; });
  return summaries;
}

void add_remark(std::vector<std::string>& remarks, const RankProfile& profile,
                const std::string& track, std::uint64_t dropped) {
  if (dropped > 0) {
    remarks.push_back(fmt::format("rank {}, {}: the oldest {} records are not kept", profile.rank,
                                  track, dropped));
  }
}

std::vector<std::string> remarks_on(const std::vector<RankProfile>& profiles) {
  std::vector<std::string> remarks;
  std::set<std::string> machines;
  for (const RankProfile& profile : profiles) {
    machines.insert(profile.machine);
    for (const Track& track : profile.streams) {
      add_remark(remarks, profile, track.name, track.dropped);
    }
    for (const Track& track : profile.waits) {
      add_remark(remarks, profile, "waits of " + track.name, track.dropped);
    }
    add_remark(remarks, profile, "commands", profile.commands.dropped);
    add_remark(remarks, profile, "collectives", profile.collectives.dropped);
  }
  if (machines.size() > 1) {
    remarks.push_back(fmt::format(
        "{} nodes: their tracks are aligned by wall time, which may differ", machines.size()));
  }
  return remarks;
}

/// Line about excluded steps and idle times; empty for a rank without steps.
std::string gaps_text(const RankSummary& one) {
  if (one.steps == 0) {
    return {};
  }
  std::string text = fmt::format("rank {}: ", one.rank);
  if (one.steps_left_out > 0) {
    text += fmt::format("without its first {} steps; ", one.steps_left_out);
  }
  text += fmt::format("{:.1f} gaps over {} us without work per step", one.gaps, kLongGap_ns / 1000);
  if (one.longest_gap_seconds > 0.0) {
    text += fmt::format(", the longest {:.3f} ms, after \"{}\" and before \"{}\"",
                        one.longest_gap_seconds * 1e3, one.gap_after, one.gap_before);
  }
  return text + "\n";
}

double percent(double part, double whole) { return whole > 0.0 ? 100.0 * part / whole : 0.0; }

}  // namespace

TimeSpans training_steps(const RankProfile& profile) {
  TimeSpans steps;
  for (const CommandRecord& command : measured_steps(profile).steps) {
    steps.push_back({command.begin_ns, command.end_ns});
  }
  return steps;
}

ProfileSummary summarize(const std::vector<RankProfile>& profiles) {
  ProfileSummary summary;
  for (const RankProfile& profile : profiles) {
    summary.ranks.push_back(summarize_rank(profile));
  }
  summary.kernels = summarize_kernels(profiles);
  summary.remarks = remarks_on(profiles);
  return summary;
}

std::string to_text(const ProfileSummary& summary) {
  std::string text =
      fmt::format("{:<18} {:<12} {:>12} {:>8}\n", "compute", "unit", "ms per step", "of step");
  for (const KernelSummary& one : summary.kernels) {
    text += fmt::format("{:<18} {:<12} {:>12.3f} {:>6.1f} %\n", one.what, one.unit,
                        one.seconds * 1e3, 100.0 * one.share);
  }
  text += fmt::format("{:<5} {:>6} {:>12} {:>19} {:>19} {:>19} {:>19} {:>12}\n", "rank", "steps",
                      "ms per step", "busy", "waiting", "overlapped", "exposed", "sent a step");
  for (const RankSummary& one : summary.ranks) {
    if (one.steps == 0) {
      text += fmt::format("{:<5} no whole training step is in the profile\n", one.rank);
      continue;
    }
    const auto part = [&one](double value) {
      return fmt::format("{:.3f} ({:5.1f} %)", value * 1e3, percent(value, one.step_seconds));
    };
    text += fmt::format("{:<5} {:>6} {:>12.3f} {:>19} {:>19} {:>19} {:>19} {:>12}\n", one.rank,
                        one.steps, one.step_seconds * 1e3, part(one.busy_seconds),
                        part(one.waiting_seconds), part(one.overlapped_seconds),
                        part(one.exposed_seconds),
                        format_bytes(static_cast<std::uint64_t>(one.sent_bytes)));
  }
  for (const RankSummary& one : summary.ranks) {
    text += gaps_text(one);
  }
  for (const std::string& remark : summary.remarks) {
    text += remark + "\n";
  }
  return text;
}

std::string to_json(const ProfileSummary& summary) {
  using Json = nlohmann::ordered_json;
  Json json{{"ranks", Json::array()}, {"kernels", Json::array()}, {"remarks", summary.remarks}};
  for (const RankSummary& one : summary.ranks) {
    json["ranks"].push_back(Json{{"rank", one.rank},
                                 {"steps", one.steps},
                                 {"steps_left_out", one.steps_left_out},
                                 {"step_seconds", one.step_seconds},
                                 {"busy_seconds", one.busy_seconds},
                                 {"waiting_seconds", one.waiting_seconds},
                                 {"overlapped_seconds", one.overlapped_seconds},
                                 {"exposed_seconds", one.exposed_seconds},
                                 {"gaps", one.gaps},
                                 {"longest_gap_seconds", one.longest_gap_seconds},
                                 {"gap_after", one.gap_after},
                                 {"gap_before", one.gap_before},
                                 {"sent_bytes", one.sent_bytes}});
  }
  for (const KernelSummary& one : summary.kernels) {
    json["kernels"].push_back(Json{
        {"what", one.what}, {"unit", one.unit}, {"seconds", one.seconds}, {"share", one.share}});
  }
  return json.dump(2) + "\n";
}

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestProfile = std::uint64_t{1} << 31U;

Status write_trace(const fs::path& path, const std::vector<RankProfile>& profiles) {
  auto file = storage::AtomicFile::create(path);
  TRAIN_RETURN_IF_ERROR(file);
  TRAIN_RETURN_IF_ERROR(
      write_chrome_trace(profiles, [&file](std::string_view text) { return file->write(text); }));
  return file->commit();
}

bool is_there(const fs::path& path, std::chrono::steady_clock::time_point deadline) {
  std::error_code unreadable;
  while (!fs::exists(path, unreadable)) {
    if (unreadable) {
      return true;  // The error is reported by read_file().
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

Status prepare_profile(const fs::path& directory) {
  TRAIN_RETURN_IF_ERROR(storage::remove_tree(directory));
  return storage::make_directory(directory);
}

Result<std::string> join_profiles(const fs::path& directory, std::int64_t ranks,
                                  std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::vector<RankProfile> profiles;
  std::vector<std::string> absent;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const fs::path path = rank_profile_path(directory, rank);
    if (!is_there(path, deadline)) {
      absent.push_back(fmt::format("rank {} left no profile: it ended before it could", rank));
      continue;
    }
    const auto text = TRAIN_TRY(storage::read_file(path, kLargestProfile));
    auto profile = TRAIN_TRY(parse_profile(text, path.string()));
    profiles.push_back(std::move(profile));
  }
  if (profiles.empty()) {
    return failure(fmt::format("{}: no rank left a profile", directory.string()));
  }
  ProfileSummary summary = summarize(profiles);
  summary.remarks.insert(summary.remarks.end(), absent.begin(), absent.end());
  TRAIN_RETURN_IF_ERROR(write_trace(directory / "trace.json", profiles));
  TRAIN_RETURN_IF_ERROR(
      storage::write_file_atomically(directory / "summary.json", to_json(summary)));
  return to_text(summary);
}

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
    Status written = write_(text_);
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
