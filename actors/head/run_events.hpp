#pragma once

#include <optional>
#include <string>

#include "actors/head/prepared_run.hpp"
#include "actors/messages/event_messages.hpp"

// What the launcher notes of a run beside its log; the run does not depend on it.
namespace train::actors {

/// One of the events in the run's index. Blocks while it is written; a failure is logged.
void log_event(const PreparedRun& run, const char* kind, const std::string& text);

/// The run's status where no observer is there to write it; `outcome`: none, it is starting. The
/// same.
void write_status(const PreparedRun& run, std::optional<RunFinished> outcome);

}  // namespace train::actors
