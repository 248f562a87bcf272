#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/state_view.hpp"

namespace train::engine {

/// Digest of the weights among `state` (is_weight(); other tensors are ignored): the sum modulo
/// 2^64 over all rows of XXH3-64(row's bytes, seeded with the parameter's name and the row's
/// index). A sum does not depend on who holds which rows, so ranks add their parts. Host memory,
/// blocking: call it in stream order.
[[nodiscard]] std::uint64_t weights_digest(std::span<const StateView> state);

/// Names of the tensors in `state`, sorted, each once. Of RankState::views(): all that a
/// checkpoint of the run holds, the same at any plan.
[[nodiscard]] std::vector<std::string> tensor_names(std::span<const StateView> state);

/// The same digest of each of `names` (sorted, all of `state` among them), of weights and of
/// optimizer states alike: the part that the rows in `state` have in it. Ranks add theirs up.
[[nodiscard]] std::vector<std::uint64_t> tensor_digests(std::span<const StateView> state,
                                                        std::span<const std::string> names);

/// weights_digest() from the digests of all tensors.
[[nodiscard]] std::uint64_t weights_digest(std::span<const std::uint64_t> digests,
                                           std::span<const std::string> names);

}  // namespace train::engine
