#pragma once

#include "base/error.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Prefixes a user error about a run with the place of the key it is about: "a.toml:12: ...". That
/// is the first key of `places` which the message names, or otherwise one whose path the message
/// begins with, and then the key follows its place. Unchanged: failures, errors that already begin
/// with a place, and errors about no given key.
[[nodiscard]] Error with_place(Error error, const RunConfig& config, const KeyPositions& places);

}  // namespace train::configs
