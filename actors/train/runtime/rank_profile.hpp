#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "actors/train/boards/rank_board.hpp"
#include "actors/train/runtime/rank_runtime.hpp"
#include "base/result.hpp"

namespace train::actors {

/// Interval of a track: work of a stream under one mark, or a wait of an actor.
struct Stretch {
  std::uint32_t name = 0;  ///< Index into RankProfile::names.
  bool waited = false;     ///< Stream was blocked by another stream.
  bool host = false;       ///< Device stream was blocked by host work.
  std::int64_t step = -1;  ///< Step from 0; -1: none.
  std::int32_t unit = -1;
  std::int32_t lane = -1;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;

  /// True if the stream did its own work.
  [[nodiscard]] bool worked() const { return !waited && !host; }
};

/// Intervals of one stream or actor, in order and without overlap.
struct Track {
  std::string name;
  std::vector<Stretch> stretches;
  std::uint64_t dropped = 0;  ///< Older intervals dropped for lack of room.
};

/// Profile of one rank. Times are of the steady clock of its machine.
struct RankProfile {
  std::int64_t rank = 0;
  std::string host;
  std::string machine;              ///< Equal for processes that share a clock.
  std::int64_t wall_offset_ns = 0;  ///< Wall time minus steady time.
  std::vector<std::string> names;
  /// Names of the passes, in the order of the run's list, then of the other commands.
  std::vector<std::string> command_names;
  std::vector<std::string> units;
  std::vector<std::string> groups;
  std::vector<Track> streams;  ///< "compute" first.
  std::vector<Track> waits;    ///< Waits per actor.
  RankTrace::Kept<CommandRecord> commands;
  RankTrace::Kept<CollectiveRecord> collectives;
};

/// Collects the rank's records so far, also during its work. REQUIRES: start_trace() was called.
[[nodiscard]] RankProfile collect_profile(const RankRuntime& runtime);

/// Path of the file of rank `rank` in the profile's directory.
[[nodiscard]] std::filesystem::path rank_profile_path(const std::filesystem::path& directory,
                                                      std::int64_t rank);

/// Writes the rank's records so far to rank_profile_path(); its actors and streams may still be
/// working. Blocks. REQUIRES: start_trace() was called.
[[nodiscard]] Status write_rank_profile(const std::filesystem::path& directory,
                                        const RankRuntime& runtime);

/// Text of the rank's own file. JSON; records are flat arrays of numbers.
[[nodiscard]] std::string to_json(const RankProfile& profile);
/// Errors: failure naming `file` if the text is malformed.
[[nodiscard]] Result<RankProfile> parse_profile(std::string_view text, const std::string& file);

}  // namespace train::actors
