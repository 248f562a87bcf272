#pragma once

#include <caf/fwd.hpp>

namespace train::actors {

/// Sets the float mode of base/math/float_mode.hpp on every thread of a system with this
/// configuration: the scheduler's threads and the network's.
void keep_float_mode(caf::actor_system_config& config);

}  // namespace train::actors
