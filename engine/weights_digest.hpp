#pragma once

#include <cstdint>
#include <span>

#include "engine/state_view.hpp"

namespace train::engine {

/// Digest of the weights among `state` ("model.*"; other tensors are ignored): the sum modulo 2^64
/// over all rows of XXH3-64(row's bytes, seeded with the parameter's name and the row's index). A
/// sum does not depend on who holds which rows, so ranks add their parts. Host memory, blocking:
/// call it in stream order.
[[nodiscard]] std::uint64_t weights_digest(std::span<const StateView> state);

}  // namespace train::engine
