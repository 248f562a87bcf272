#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "actors/train/rank_profile.hpp"
#include "base/result.hpp"

namespace train::cli {

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

}  // namespace train::cli
