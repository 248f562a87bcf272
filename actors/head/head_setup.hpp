#pragma once

#include <caf/actor.hpp>
#include <memory>

#include "actors/messages/cluster_messages.hpp"
#include "actors/training_system.hpp"
#include "run/prepared_run.hpp"

namespace train::actors {

/// Message to a rank process that joins the head: the configuration, the state to resume from, and
/// the actors that it talks to.
[[nodiscard]] Assignment make_assignment(const run::PreparedRun& run, const HeadActors& head,
                                         const caf::actor& rendezvous);

/// Parts for the launcher's actors; `disk` publishes checkpoints. Borrows `run`.
[[nodiscard]] HeadParts head_parts(const run::PreparedRun& run,
                                   std::shared_ptr<run::RunReport> report,
                                   std::shared_ptr<kernels::Stream> disk);

}  // namespace train::actors
