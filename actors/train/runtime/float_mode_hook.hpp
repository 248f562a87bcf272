#pragma once

#include <caf/fwd.hpp>

namespace train::actors {

/// Every thread that a system of this configuration starts computes in the mode of
/// base/float_mode.hpp: those that handlers run on, and that of the network.
void keep_float_mode(caf::actor_system_config& config);

}  // namespace train::actors
