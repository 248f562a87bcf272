#pragma once

#include <caf/fwd.hpp>
#include <cstdint>
#include <string>

#include "actors/handles.hpp"
#include "actors/rank_runtime.hpp"

namespace train::actors {

/// Reads the wait board and the streams once a second. When one thing has lasted longer than
/// `stall_ns` it logs, once per stall, who waits for what and what the streams are busy with. It
/// only reports; it never ends anything.
[[nodiscard]] WatchdogActor spawn_watchdog(caf::actor_system& system, const RankContext& context,
                                           std::int64_t stall_ns);

/// The report as one line; empty if nothing has lasted `stall_ns` at `now_ns`.
[[nodiscard]] std::string stall_report(const RankRuntime& runtime, std::int64_t stall_ns,
                                       std::int64_t now_ns);

}  // namespace train::actors
