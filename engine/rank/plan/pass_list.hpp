#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/command.hpp"
#include "engine/objective/pass.hpp"
#include "engine/rank/plan/rank_options.hpp"

namespace train::engine {

/// The passes of a run, by the index that commands carry: a pure function of its objective, the
/// same on every rank and in the launcher. A new kind of pass is one entry here.
class PassList {
 public:
  /// Lists the passes of steps with `passes`, one or more. `live_reference`: the frozen copy
  /// computes the reference's log-probabilities. `step_sums`: blocks read sums of the whole step
  /// (BlockSpec::reads_step_sums); REQUIRES: then there is one pass.
  explicit PassList(const std::vector<Pass>& passes = {Pass{}}, bool live_reference = false,
                    bool step_sums = false);

  [[nodiscard]] const std::vector<PassPlan>& all() const { return all_; }
  [[nodiscard]] const PassPlan& at(std::int32_t index) const {
    return all_.at(static_cast<std::size_t>(index));
  }
  [[nodiscard]] const PassPlan& evaluation() const { return at(kEvaluation.index); }
  [[nodiscard]] const PassPlan& scoring() const { return at(kScoring.index); }
  [[nodiscard]] const PassPlan& reference() const { return at(kReference.index); }
  [[nodiscard]] const PassPlan& sampling() const { return at(kSampling.index); }
  /// The commands of a step, in their order; the last one updates. Before a pass that compares
  /// comes the frozen copy's forward pass over the same rows, and with sums of the whole step
  /// before the one pass the forward pass that finds them.
  [[nodiscard]] const std::vector<PassPlan>& step() const { return step_; }
  /// Passes that repeat a step to search for non-finite values.
  [[nodiscard]] const std::vector<PassPlan>& search() const { return search_; }

 private:
  PassPlan add(PassPlan pass);

  std::vector<PassPlan> all_, step_, search_;
};

/// The list of a run with these options. REQUIRES: plan_of(options) is not an error.
[[nodiscard]] PassList pass_list_of(const RankOptions& options);

}  // namespace train::engine
