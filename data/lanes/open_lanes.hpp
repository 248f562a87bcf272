#pragma once

#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/lanes/directory_lanes.hpp"
#include "data/lanes/lane_source.hpp"

namespace train::data {

/// Opens `config.data.dir` alone, in the form required by an objective of one pass. Errors: those
/// of open_lanes().
[[nodiscard]] Result<std::shared_ptr<const DirectoryLanes>> open_directory(
    const configs::RunConfig& config, std::int64_t vocab_size, const char* key = "data.dir");

/// Opens the data of a run, in the form required by its objective, for a model of `vocab_size`.
/// Errors (user): those of TokenDataset::open and RowSplit::open; data of another form or kind; no
/// trained target to learn from or to evaluate on; data.order = "dstar" is not possible.
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_lanes(const configs::RunConfig& config,
                                                                   std::int64_t vocab_size);

}  // namespace train::data
