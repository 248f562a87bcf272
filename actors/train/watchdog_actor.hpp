#pragma once

#include <caf/actor.hpp>
#include <caf/fwd.hpp>
#include <chrono>
#include <cstdint>

#include "actors/handles.hpp"
#include "actors/messages/watch_messages.hpp"
#include "actors/train/rank_runtime.hpp"

namespace train::actors {

/// How often a rank says where it is.
inline constexpr std::chrono::seconds kWatchPeriod{1};

/// Tells `observer` once in kWatchPeriod where the rank is: what its actors wait for, how far its
/// channels are, what its streams are in, which credits are held, how many messages wait. Sends
/// nothing while the one before has not been answered (EX-4). Ends nothing, and waits for nobody.
///
///   CheckStalls (itself) -> RankObserved to the observer -> ObservationTaken
/// `parts`: the rank's actors, for the lengths of their mailboxes; they run their handlers on the
/// thread of this actor.
[[nodiscard]] WatchdogActor spawn_watchdog(caf::actor_system& system, const RankContext& context,
                                           ObserverActor observer, NamedActors parts);

/// Where the rank is, as its boards and streams show it at `now_ns`.
[[nodiscard]] RankObserved observe_rank(const RankRuntime& runtime, std::int64_t now_ns);

}  // namespace train::actors
