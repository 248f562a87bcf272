#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/train/boards/rank_board.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"

namespace train::actors {

/// A stretch of a track's time: work of a stream under one mark, or a wait of an actor.
struct Stretch {
  std::uint32_t name = 0;  ///< Index into RankProfile::names.
  bool waited = false;     ///< A stream that was held up by another one.
  bool host = false;       ///< A stream of a device that was held up by the host's work.
  std::int64_t step = -1;  ///< From 0; -1: of none.
  std::int32_t unit = -1;
  std::int32_t lane = -1;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  /// The stream did what it is there for.
  [[nodiscard]] bool worked() const { return !waited && !host; }
};

/// What one stream or one actor did; stretches follow one another and do not overlap.
struct Track {
  std::string name;
  std::vector<Stretch> stretches;
  std::uint64_t dropped = 0;  ///< Older ones that there was no room for.
};

/// All that one rank kept of a run. Times are of the steady clock of its machine.
struct RankProfile {
  std::int64_t rank = 0;
  std::string host;
  std::string machine;              ///< One value for all processes that share a clock.
  std::int64_t wall_offset_ns = 0;  ///< Wall time minus steady time.
  std::vector<std::string> names;
  /// Of passes as the run's list has them, then of the other commands.
  std::vector<std::string> command_names;
  std::vector<std::string> units;
  std::vector<std::string> groups;
  std::vector<Track> streams;  ///< "compute" first.
  std::vector<Track> waits;    ///< By actor.
  RankTrace::Kept<CommandRecord> commands;
  RankTrace::Kept<CollectiveRecord> collectives;
};

/// What the rank has kept so far; also while it works. REQUIRES: start_trace() was called.
[[nodiscard]] RankProfile collect_profile(const RankRuntime& runtime);

/// The text of the rank's own file. JSON; records are flat arrays of numbers.
[[nodiscard]] std::string to_json(const RankProfile& profile);
/// Errors: failure naming `file` when it is no such text.
[[nodiscard]] Result<RankProfile> parse_profile(std::string_view text, const std::string& file);

}  // namespace train::actors
