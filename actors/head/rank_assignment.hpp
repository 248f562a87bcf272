#pragma once

#include <caf/actor.hpp>

#include "actors/head/prepared_run.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/training_system.hpp"

namespace train::actors {

/// What every rank of a run that is a process of its own is told when it joins the head: the
/// configuration, where the state is that it resumes from, and whom it talks to.
[[nodiscard]] Assignment make_assignment(const PreparedRun& run, const HeadActors& head,
                                         const caf::actor& rendezvous);

}  // namespace train::actors
