#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/lanes/lane_source.hpp"
#include "engine/objective/objective.hpp"

namespace train::data {

/// Row streams for steps of several passes: each pass reads its own stream in order; evaluations
/// read the stream of the first pass. The frozen copy reads the stream of the pass that follows it.
class PassLanes final : public LaneSource {
 public:
  /// `streams`: one per pass; null for a pass without rows (GradientSource::distances), whose lanes
  /// are left unchanged. `vocab_size`: upper bound of the targets that the objective draws.
  PassLanes(std::vector<std::shared_ptr<const LaneSource>> streams,
            const configs::RunConfig& config, std::int64_t vocab_size);

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  /// Row counts of all passes.
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::optional<engine::RowCount> count_pass(std::int64_t step,
                                                           std::size_t pass) const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  std::vector<std::shared_ptr<const LaneSource>> streams_;
  std::shared_ptr<const engine::Objective> objective_;
  std::int64_t vocab_size_;
};

/// Opens the streams of `config`. Errors (user): a directory is missing; those of open_rows().
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_passes(
    const configs::RunConfig& config, std::int64_t vocab_size);

}  // namespace train::data
