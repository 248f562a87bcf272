#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/choices/choice_set.hpp"
#include "data/lanes/lane_source.hpp"

namespace train::data {

/// Serves questions as the lanes of LaneRows::questions, and forwards the rest to another source.
class ChoiceLanes final : public LaneSource {
 public:
  /// `rest`: null: there are no other lanes and no training data.
  ChoiceLanes(std::shared_ptr<const LaneSource> rest, std::shared_ptr<const ChoiceSet> choices);

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] std::optional<engine::RowCount> count_pass(std::int64_t step,
                                                           std::size_t pass) const override {
    return rest_ ? rest_->count_pass(step, pass) : std::nullopt;
  }
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  std::shared_ptr<const LaneSource> rest_;
  std::shared_ptr<const ChoiceSet> choices_;
};

/// Tokenizes eval.choices with the run's tokenizer, for a model of `vocab_size`; null if there are
/// no choices. The tokenizer is the model's (model.from, or its copy in the directory `run_model`),
/// or the one stored in data.dir; bytes if the data is bytes or the vocabulary implies bytes.
/// Blocks. Errors (user): no tokenizer; those of Tokenizer::load and ChoiceSet::open.
[[nodiscard]] Result<std::shared_ptr<const ChoiceSet>> open_choices(
    const configs::RunConfig& config, const std::filesystem::path& run_model,
    std::int64_t vocab_size);

}  // namespace train::data
