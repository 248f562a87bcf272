#pragma once

#include <cstdint>

#include "actors/messages/event_messages.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "engine/rank/rank_engine.hpp"

namespace train::actors {

/// What a rank reports of step `step` (from 0), in stream order. `with_digest`: also the digests of
/// its rows of all tensors, which takes a read of all of them.
[[nodiscard]] StepFinished step_event(const engine::RankEngine& engine, std::int64_t step,
                                      bool with_digest);

/// What the journal keeps of the event of all ranks; without the tokens.
[[nodiscard]] checkpoint::StepRecord step_record(const StepFinished& event);

}  // namespace train::actors
