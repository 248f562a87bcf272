#pragma once

#include <cstdint>

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {

/// -exp(a_log) in `scratch`, by blocks of channels: [blocks, states, kScanChannels], and zeros
/// behind the last channel.
const float* scan_rates(const float* a_log, std::int64_t channels, std::int64_t states, int threads,
                        Scratch& scratch);

}  // namespace train::kernels::cpu
