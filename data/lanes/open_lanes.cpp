#include "data/lanes/open_lanes.hpp"

#include "data/lanes/mixed_lanes.hpp"
#include "data/lanes/pass_lanes.hpp"
#include "data/lanes/row_lanes.hpp"
#include "data/lanes/token_lanes.hpp"
#include "engine/objective/registry.hpp"

namespace train::data {

Result<std::shared_ptr<const DirectoryLanes>> open_directory(const configs::RunConfig& config,
                                                             std::int64_t vocab_size,
                                                             const char* key) {
  const auto objective = engine::make_objective(config.objective);
  const bool rows = objective->columns() != engine::LaneColumns{};
  return rows ? open_rows(config, vocab_size, key) : open_tokens(config, vocab_size, key);
}

Result<std::shared_ptr<const LaneSource>> open_lanes(const configs::RunConfig& config,
                                                     std::int64_t vocab_size) {
  if (engine::make_objective(config.objective)->several_passes()) {
    return open_passes(config, vocab_size);
  }
  if (!config.data.sources.empty()) {
    return open_sources(config, vocab_size);
  }
  const auto lanes = TRAIN_TRY(open_directory(config, vocab_size));
  return std::shared_ptr<const LaneSource>(lanes);
}

}  // namespace train::data
