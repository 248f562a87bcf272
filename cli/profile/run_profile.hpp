#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/train/runtime/rank_profile.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"

namespace train::cli {

/// [begin, end) in nanoseconds.
struct TimeSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  [[nodiscard]] std::int64_t size_ns() const { return end_ns - begin_ns; }
};

/// Spans in order, disjoint and non-empty.
using TimeSpans = std::vector<TimeSpan>;

/// Union of `spans`, which may be unordered and overlap.
[[nodiscard]] TimeSpans united(TimeSpans spans);
/// Intersection of both, or `a` without `b`.
[[nodiscard]] TimeSpans common(const TimeSpans& a, const TimeSpans& b);
[[nodiscard]] TimeSpans without(const TimeSpans& a, const TimeSpans& b);
[[nodiscard]] std::int64_t total_ns(const TimeSpans& spans);

/// Idle time of a stream that counts as a gap: a kernel launch may take a few microseconds; longer
/// means that work was not submitted in time.
constexpr std::int64_t kLongGap_ns = 20'000;

/// Number of first steps to exclude, which select algorithms, allocate memory and load libraries.
/// They are included if fewer steps than that remain.
constexpr std::int64_t kFirstSteps = 3;

/// Breakdown of one rank's training steps; means per step.
///
/// A step lasts from the time when the compute stream reaches its command until the command is
/// done. Busy: the stream works; waiting: it does not. Communication is the time in which at least
/// one collective of the rank is in flight: exposed if the stream is not busy, otherwise
/// overlapped.
struct RankSummary {
  std::int64_t rank = 0;
  std::int64_t steps = 0;  ///< Measured steps: those without dropped records, except the first.
  std::int64_t steps_left_out = 0;  ///< kFirstSteps, or 0.
  double step_seconds = 0.0;
  double busy_seconds = 0.0;
  double waiting_seconds = 0.0;
  double overlapped_seconds = 0.0;
  double exposed_seconds = 0.0;
  double gaps = 0.0;  ///< Number of idle times of the stream longer than kLongGap_ns.
  double longest_gap_seconds = 0.0;   ///< Over all measured steps.
  std::string gap_after, gap_before;  ///< Pieces of work before and after it; empty: none.
  double sent_bytes = 0.0;            ///< Bytes sent to other ranks by the collectives of a step.
};

/// Compute time by mark and kind of unit; means per step and rank.
struct KernelSummary {
  std::string what;
  std::string unit;  ///< "block" for all blocks; empty: no unit.
  double seconds = 0.0;
  double share = 0.0;  ///< Fraction of the step.
};

struct ProfileSummary {
  std::vector<RankSummary> ranks;
  std::vector<KernelSummary> kernels;  ///< Longest first.
  std::vector<std::string> remarks;    ///< Notes for the reader: dropped records, clocks.
};

/// Measured training steps of a rank, in order, without the excluded ones.
[[nodiscard]] TimeSpans training_steps(const actors::RankProfile& profile);

[[nodiscard]] ProfileSummary summarize(const std::vector<actors::RankProfile>& profiles);

/// Summary as a text table.
[[nodiscard]] std::string to_text(const ProfileSummary& summary);
/// {"ranks": [{"rank", "steps", "steps_left_out", "step_seconds", "busy_seconds",
/// "waiting_seconds", "overlapped_seconds", "exposed_seconds", "gaps", "longest_gap_seconds",
/// "gap_after", "gap_before", "sent_bytes"}],
/// "kernels": [{"what", "unit", "seconds", "share"}], "remarks": [...]}
[[nodiscard]] std::string to_json(const ProfileSummary& summary);

/// Writes the next piece of text; an error ends the output.
using WriteText = std::function<Status(std::string_view)>;

/// Writes one trace of all ranks in the JSON format of Chrome's trace viewer, also read by
/// Perfetto: one process per rank; one track for its commands, each of its streams, each channel of
/// collectives, and each waiting actor. Events are sorted by time, in microseconds from the first
/// one; those of one track do not overlap.
///
/// A collective is drawn from the time when the transport could start it: when it was submitted and
/// the previous one in its channel had ended. Ranks of other machines than the first one's are
/// aligned by wall time. Errors: those of `write`.
[[nodiscard]] Status write_chrome_trace(const std::vector<actors::RankProfile>& profiles,
                                        const WriteText& write);

/// Creates `directory`, removing an earlier profile. Blocks.
[[nodiscard]] Status prepare_profile(const std::filesystem::path& directory);

/// Joins the files of `ranks` ranks into trace.json (Chrome's format) and summary.json, and returns
/// the summary as a table. Blocks; waits up to `patience` for files of ranks on other nodes. A rank
/// without a file (it was killed) is named in the table. Errors: no rank left a file; a file that
/// cannot be read or written.
[[nodiscard]] Result<std::string> join_profiles(const std::filesystem::path& directory,
                                                std::int64_t ranks,
                                                std::chrono::milliseconds patience);

}  // namespace train::cli
