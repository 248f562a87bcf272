#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/train/boards/rank_profile.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"

namespace train::cli {

/// [begin, end) in nanoseconds.
struct TimeSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  [[nodiscard]] std::int64_t size_ns() const { return end_ns - begin_ns; }
};

/// Spans in order that neither overlap nor are empty.
using TimeSpans = std::vector<TimeSpan>;

/// The time that any of `spans` covers; they come in any order and may overlap.
[[nodiscard]] TimeSpans united(TimeSpans spans);
/// The time that both cover, or `a` without `b`.
[[nodiscard]] TimeSpans common(const TimeSpans& a, const TimeSpans& b);
[[nodiscard]] TimeSpans without(const TimeSpans& a, const TimeSpans& b);
[[nodiscard]] std::int64_t total_ns(const TimeSpans& spans);

/// A launch of a kernel may take a few microseconds; a stream that stands still for longer was not
/// given its work in time.
constexpr std::int64_t kLongGap_ns = 20'000;

/// The first steps of a run choose ways to compute, make memory and load libraries; what they took
/// says nothing of the others. They are left out where at least as many remain.
constexpr std::int64_t kFirstSteps = 3;

/// Where one rank's training steps went; means per step.
///
/// A step lasts from when the compute stream comes to its command until it has run it. Busy: the
/// stream works; waiting: it does not. Communication is the time in which at least one collective
/// of the rank is between request and end: exposed where the stream is not busy, else overlapped.
struct RankSummary {
  std::int64_t rank = 0;
  std::int64_t steps = 0;  ///< Measured: those of which nothing was dropped, but for the first.
  std::int64_t steps_left_out = 0;  ///< kFirstSteps, or 0.
  double step_seconds = 0.0;
  double busy_seconds = 0.0;
  double waiting_seconds = 0.0;
  double overlapped_seconds = 0.0;
  double exposed_seconds = 0.0;
  double gaps = 0.0;  ///< Times that the stream stood still for more than kLongGap_ns.
  double longest_gap_seconds = 0.0;   ///< Of all measured steps.
  std::string gap_after, gap_before;  ///< The pieces of work that it lies between; empty: none.
  double sent_bytes = 0.0;            ///< To other ranks, by the collectives of the step's command.
};

/// Compute time under one mark, by kind of unit; means per step and rank.
struct KernelSummary {
  std::string what;
  std::string unit;  ///< "block" for all blocks together; empty: of no unit.
  double seconds = 0.0;
  double share = 0.0;  ///< Of the step.
};

struct ProfileSummary {
  std::vector<RankSummary> ranks;
  std::vector<KernelSummary> kernels;  ///< The longest first.
  std::vector<std::string> remarks;    ///< What a reader has to know: dropped records, clocks.
};

/// The measured training steps of a rank, in order; those that are left out are not among them.
[[nodiscard]] TimeSpans training_steps(const actors::RankProfile& profile);

[[nodiscard]] ProfileSummary summarize(const std::vector<actors::RankProfile>& profiles);

/// The table for people.
[[nodiscard]] std::string to_text(const ProfileSummary& summary);
/// {"ranks": [{"rank", "steps", "steps_left_out", "step_seconds", "busy_seconds",
/// "waiting_seconds", "overlapped_seconds", "exposed_seconds", "gaps", "longest_gap_seconds",
/// "gap_after", "gap_before", "sent_bytes"}],
/// "kernels": [{"what", "unit", "seconds", "share"}], "remarks": [...]}
[[nodiscard]] std::string to_json(const ProfileSummary& summary);

/// Takes the next piece of a text; a failure ends the writing.
using WriteText = std::function<Status(std::string_view)>;

/// Writes one trace of all ranks in the JSON format of Chrome's trace viewer, which Perfetto opens
/// as well: a process per rank; a track for its commands, each of its streams, each channel of
/// collectives, and each actor that waited. Events are sorted by time, in microseconds from the
/// first one; those of one track follow one another.
///
/// A collective is drawn from when the transport could begin with it: when it was handed over, and
/// the one before it in its channel had ended. Ranks of other machines than the first one's are
/// aligned by wall time. Errors: those of `write`.
[[nodiscard]] Status write_chrome_trace(const std::vector<actors::RankProfile>& profiles,
                                        const WriteText& write);

/// Makes `directory`, empty: an earlier profile goes. Blocks.
[[nodiscard]] Status prepare_profile(const std::filesystem::path& directory);

/// Writes what the rank has kept so far to its own file; its actors and streams may still work.
/// Blocks. REQUIRES: start_trace() was called.
[[nodiscard]] Status write_rank_profile(const std::filesystem::path& directory,
                                        const actors::RankRuntime& runtime);

/// Joins the files of `ranks` ranks into trace.json (Chrome's format) and summary.json, and returns
/// the summary as a table. Blocks; waits up to `patience` for files of ranks on other nodes. A rank
/// that left no file (it was killed) is named in the table.
/// Errors: no rank left one; a file that cannot be read or written.
[[nodiscard]] Result<std::string> join_profiles(const std::filesystem::path& directory,
                                                std::int64_t ranks,
                                                std::chrono::milliseconds patience);

}  // namespace train::cli
