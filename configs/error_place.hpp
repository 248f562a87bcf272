#pragma once

#include "base/error.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// The user's error about a run that was found after its file was read, with the place in front
/// where the key was set that it is about: "a.toml:12: ...". That is the first key of `places`
/// which the message names, or else one whose path the message begins with: then the key follows
/// its place. Unchanged: a failure, an error that already begins with a place, and one about
/// nothing that was set.
[[nodiscard]] Error with_place(Error error, const RunConfig& config, const KeyPositions& places);

}  // namespace train::configs
