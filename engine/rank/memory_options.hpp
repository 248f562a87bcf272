#pragma once

#include <cstdint>

#include "configs/parallel_section.hpp"
#include "engine/model/checkpointing.hpp"

namespace train::engine {

/// What of the state lies in memory of kind Device::offload; the rest is where kernels compute.
enum class Offload : std::uint8_t {
  nothing,
  optimizer,   ///< The optimizer's state tensors.
  parameters,  ///< Those, and masters and shards of weights; not weights that layers read.
};

/// What [memory] asks for.
[[nodiscard]] Checkpointing checkpointing_of(const configs::MemorySection& section);
[[nodiscard]] Offload offload_of(const configs::MemorySection& section);
/// Whether bf16 weights are made of the masters for each visit of a layer, where all masters are
/// here.
[[nodiscard]] bool makes_weights(const configs::MemorySection& section);

}  // namespace train::engine
