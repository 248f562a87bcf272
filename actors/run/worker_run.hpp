#pragma once

#include <memory>

#include "actors/messages/event_messages.hpp"
#include "actors/run/prepared_run.hpp"

namespace train::actors {

/// Whether the launcher could let its ranks in at the interface and the port of `parallel`; asked
/// before anything of a run is written. Errors (user): name the key and what there is instead.
[[nodiscard]] Status check_network(const configs::ParallelSection& parallel);

/// Runs all ranks in processes of their own, which this one starts (those of its node) and watches,
/// until the run is over. No process of the run is left on return. Blocking.
/// Errors: what keeps the run from starting (port taken, another version on a node, a rank without
/// memory); the exit code is the error's.
[[nodiscard]] Result<RunFinished> run_in_processes(const PreparedRun& run,
                                                   std::shared_ptr<RunReport> report);

}  // namespace train::actors
