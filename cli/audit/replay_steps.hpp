#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/train/rank_runtime.hpp"
#include "base/result.hpp"
#include "checkpoint/index/step_journal.hpp"

namespace train::cli {

/// Names of all tensors of these ranks' run, sorted.
[[nodiscard]] std::vector<std::string> tensor_names(const std::vector<actors::RankContext>& ranks);

/// Digests of what the ranks hold now, by tensor_names(). REQUIRES: their streams are idle.
[[nodiscard]] std::vector<std::uint64_t> tensor_digests(
    const std::vector<actors::RankContext>& ranks);

/// Trains on `ranks`, which are in this process and stand at `first_step`, up to `last_step`, and
/// gives each step with its digests to `heard`, which returns false to stop. Nothing is evaluated
/// or written. Blocks. Errors: a rank failed; a step was not finite.
Status replay_steps(const std::vector<actors::RankContext>& ranks, std::int64_t first_step,
                    std::int64_t last_step,
                    const std::function<bool(const checkpoint::StepRecord&)>& heard);

}  // namespace train::cli
