#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/sections/data_section.hpp"

namespace train::configs {

/// Largest sum of the whole weights of a stage.
inline constexpr std::int64_t kMostWeightParts = (std::int64_t{1} << 31) - 1;

/// Smallest integers with the ratios of `weights`, which are positive: 0.5 and 0.3 are 5 and 3.
/// Nullopt: a weight has more than six decimals, or the integers' sum is above kMostWeightParts.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> whole_weights(
    std::span<const double> weights);

/// Stage of a curriculum: the sources that are read after `from_step` finished steps.
struct SourceStage {
  std::int64_t from_step = 0;
  std::vector<std::size_t> sources = {};    ///< Indices into SourcePlan::directories.
  std::vector<std::uint64_t> weights = {};  ///< whole_weights() of each.
};

/// Sources of a run: each directory once, and the stages that read them.
struct SourcePlan {
  std::vector<std::string> directories;  ///< In the order of data.sources.
  std::vector<double> max_epochs;        ///< Smallest limit per directory; 0: none.
  std::vector<std::string> names;        ///< Last part of its path if unique, else the path.
  std::vector<SourceStage> stages;       ///< By from_step, the first of 0.
};

/// Pure. REQUIRES: the sources are valid (check_sources).
[[nodiscard]] SourcePlan plan_sources(std::span<const DataSource> sources);

/// Checks that two configurations read the same rows in the first `steps` steps, so that later ones
/// may follow the second: the stages that began before are equal, directory by directory in order.
/// Directories may have moved. Pure. Errors (user): they differ; names the key and the fix.
[[nodiscard]] Status check_sources_read(std::span<const DataSource> before,
                                        std::span<const DataSource> now, std::int64_t steps);

}  // namespace train::configs
