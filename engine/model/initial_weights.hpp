#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "engine/model/spec.hpp"
#include "engine/model/weight_source.hpp"
#include "engine/parameter.hpp"

namespace train::engine {

enum class InitScheme : std::uint8_t { scaled_gpt, karpathy_gpt2, standard };

struct InitOptions {
  std::uint64_t seed = 0;
  InitScheme scheme = InitScheme::scaled_gpt;
  double init_std = 0.02;
  std::shared_ptr<const WeightSource> source = {};  ///< Instead of drawing them.
};

/// Standard deviation by scheme and kind, or of a range: 0 of a constant.
[[nodiscard]] double initial_std(const Parameter& parameter, const ModelSpec& spec,
                                 const InitOptions& options);

/// Fills rows [first_row, first_row + rows) of the parameter: each value is a pure function of
/// (seed, parameter name, element index), so it is the same at any number of ranks.
/// Philox4x32-10 (Salmon et al. 2011) + Box-Muller. Blocking, host memory.
void fill_initial_rows(const Parameter& parameter, const ModelSpec& spec,
                       const InitOptions& options, std::int64_t first_row, std::int64_t rows,
                       std::span<float> out);

}  // namespace train::engine
