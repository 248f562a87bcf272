#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "actors/train/lanes/lane_source.hpp"
#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "engine/objective/objective.hpp"

namespace train::actors {

/// Two streams of rows, of steps of two passes: the first pass and evaluations read
/// data.dir, the second pass data.forget_dir, each in the order of its own rows. The frozen copy
/// reads what the pass that it comes before does.
class PassLanes final : public LaneSource {
 public:
  /// `second`: null where the second pass has no rows (GradientSource::distances): its lanes
  /// are left as they are. `vocab_size`: targets that the objective draws are below it.
  PassLanes(std::shared_ptr<const LaneSource> first, std::shared_ptr<const LaneSource> second,
            const configs::RunConfig& config, std::int64_t vocab_size);

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  /// Of both passes.
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::optional<engine::RowCount> count_pass(engine::CommandKind kind,
                                                           std::int64_t step) const override;
  [[nodiscard]] std::uint64_t training_rows() const override;
  [[nodiscard]] ReferenceRows reference_rows() const override;
  [[nodiscard]] std::optional<double> bytes_per_token() const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  /// The stream of the command's lanes; null: they have no rows.
  [[nodiscard]] const LaneSource* of(engine::CommandKind kind) const;

  std::shared_ptr<const LaneSource> first_, second_;
  std::shared_ptr<const engine::Objective> objective_;
  std::int64_t vocab_size_;
};

/// The streams of `config`. Errors (user): those of open_rows() for both.
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_passes(
    const configs::RunConfig& config, std::int64_t vocab_size);

}  // namespace train::actors
