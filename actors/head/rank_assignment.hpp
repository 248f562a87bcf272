#pragma once

#include <caf/actor.hpp>

#include "actors/head/prepared_run.hpp"
#include "actors/messages/cluster_messages.hpp"
#include "actors/training_system.hpp"

namespace train::actors {

/// Message to a rank process that joins the head: the configuration, the state to resume from, and
/// the actors that it talks to.
[[nodiscard]] Assignment make_assignment(const PreparedRun& run, const HeadActors& head,
                                         const caf::actor& rendezvous);

}  // namespace train::actors
