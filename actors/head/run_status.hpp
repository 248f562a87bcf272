#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/run_report.hpp"
#include "actors/head/stall_chain.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/train/rank_board.hpp"

namespace train::actors {

/// What stays the same for all generations of a start.
struct StatusBase {
  std::string run = {};  ///< Its directory's name.
  std::string host = {};
  std::int64_t pid = 0;             ///< Of the head launcher.
  std::uint64_t process_start = 0;  ///< Of that process, as the kernel counts it.
  std::int64_t started_unix_s = 0;  ///< This start.
  std::int64_t steps = 0;           ///< Of the whole run.
};

/// A run as its head knows it at one moment. Times are of the head's steady clock.
struct RunStatus {
  StatusBase base;
  std::string phase = "starting";  ///< "starting", "running" or "over".
  std::uint32_t generation = 0;
  std::int64_t ranks = 0;
  std::int64_t now_ns = 0;
  std::int64_t now_unix_s = 0;
  RunProgress progress = {};
  std::vector<ObservedWait> waits = {};      ///< Of the launcher's actors.
  std::vector<ObservedQueue> credits = {};   ///< That they lend.
  std::vector<ObservedStream> streams = {};  ///< Theirs.
  std::vector<HeardRank> heard = {};
  std::optional<Stall> stall = {};
  std::optional<RunFinished> outcome = {};
};

/// One JSON object, ending in a line feed: what `<run>/status.json` holds (actors/README.md).
[[nodiscard]] std::string to_json(const RunStatus& status);

}  // namespace train::actors
