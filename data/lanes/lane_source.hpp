#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "data/lanes/lane_facts.hpp"
#include "engine/command.hpp"
#include "engine/lanes/lane_slot.hpp"
#include "engine/objective/objective.hpp"

namespace train::data {

/// Data of a run, as lanes: the tokens of each lane of a step, and the counts of a step. A pure
/// function of files, configuration and step: never of a rank or of history.
///
/// Threading: immutable; all calls from any thread.
class LaneSource {
 public:
  virtual ~LaneSource() = default;
  LaneSource(const LaneSource&) = delete;
  LaneSource& operator=(const LaneSource&) = delete;

  [[nodiscard]] const LaneFacts& facts() const { return facts_; }

  /// Fills a slot of the run's objective with the lane. Blocking (disk).
  [[nodiscard]] virtual Status read(const engine::LaneWork& work,
                                    const engine::LaneSlot& slot) const = 0;
  /// Row counts of training step `step` (from 0), all lanes together; read from the row index
  /// alone. Nullopt: each position is a token with a target of weight 1.
  [[nodiscard]] virtual std::optional<engine::RowCount> count(std::int64_t step) const = 0;
  /// Row counts of one pass, if a step has several.
  [[nodiscard]] virtual std::optional<engine::RowCount> count_pass(std::int64_t step,
                                                                   std::size_t /*pass*/) const {
    return count(step);
  }
  /// Fingerprint of the data. Blocking (disk).
  [[nodiscard]] virtual Result<std::string> fingerprint() const = 0;

  /// ReportOptions::rows and RankOptions::step_weight of this data; the functions keep it open.
  [[nodiscard]] static std::function<engine::RowCount(std::int64_t)> row_count(
      const std::shared_ptr<const LaneSource>& data);
  [[nodiscard]] static std::function<double(std::int64_t, std::size_t)> step_weight(
      const std::shared_ptr<const LaneSource>& data);

 protected:
  /// A constructor that needs its members for `facts` sets facts_ itself.
  explicit LaneSource(LaneFacts facts = {}) : facts_(std::move(facts)) {}

  LaneFacts facts_;
};

}  // namespace train::data
