#include "cli/profile/run_profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
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
  text += fmt::format("{:.1f} times in a step no work for {} us", one.gaps, kLongGap_ns / 1000);
  if (one.longest_gap_seconds > 0.0) {
    text += fmt::format(", at most for {:.3f} ms, after \"{}\" and before \"{}\"",
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
    const auto text = storage::read_file(path, kLargestProfile);
    TRAIN_RETURN_IF_ERROR(text);
    auto profile = parse_profile(*text, path.string());
    TRAIN_RETURN_IF_ERROR(profile);
    profiles.push_back(std::move(profile).value());
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

}  // namespace train::cli
