#pragma once

#include <cstdint>
#include <memory>

#include "configs/sections/parallel_section.hpp"
#include "engine/optimizer/optimizer.hpp"

namespace train::engine {

/// Name of the state that holds the running average of a parameter's weights.
inline constexpr std::string_view kAverageState = "ema";

/// beta of the average after update `step` (from 1): train.ema, with train.ema_warmup at most
/// (1 + step) / (10 + step).
[[nodiscard]] double average_beta(const configs::TrainSection& section, std::int64_t step);

/// `inner`, which then also keeps a running average of the weights: after each update
/// average = beta average + (1 - beta) weights, in fp32; it begins with the initial weights. The
/// average is one state more, so it is sharded, offloaded and saved as the others are. `inner`
/// itself where train.ema is 0.
[[nodiscard]] std::unique_ptr<Optimizer> with_average(std::unique_ptr<Optimizer> inner,
                                                      const configs::TrainSection& section);

}  // namespace train::engine
