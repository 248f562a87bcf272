#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace train::actors {

/// Which snapshot is saved when: one save is under way, the newest of the others waits for it, and
/// takes the place of one that waited before. A plain class; the conductor owns it and tells every
/// rank what it says, so that no rank ever saves what another one skips.
///
/// A snapshot whose state turns out not finite is dropped as if it had never been taken. So what a
/// newer one replaces stays in the ranks' memory until the newer one is known to be good.
/// REQUIRES: steps of successive calls of take() ascend.
class SaveSchedule {
 public:
  /// What goes with the command to take a snapshot.
  struct Take {
    std::int64_t replaces = -1;  ///< The snapshot whose place it takes, once it is good; -1: none.
    bool write_now = false;      ///< Nothing is under way: it is granted with the command.
  };

  /// The state after `step` steps is to be saved.
  [[nodiscard]] Take take(std::int64_t step);

  /// The save of `step`, which was under way, is over, well or not. The step to grant next, if one
  /// waits.
  [[nodiscard]] std::optional<std::int64_t> over(std::int64_t step);

  /// All states up to `step` are finite.
  void good_through(std::int64_t step);
  /// The states of `step` and after are not. The step to grant next if that ended what was under
  /// way.
  [[nodiscard]] std::optional<std::int64_t> nonfinite_from(std::int64_t step);

  /// Steps that a newer one has replaced for good since the last call, ascending.
  [[nodiscard]] std::vector<std::int64_t> skipped() { return std::exchange(skipped_, {}); }

  [[nodiscard]] bool idle() const { return taken_.empty(); }
  [[nodiscard]] std::optional<std::int64_t> under_way() const { return under_way_; }
  /// The newest one that waits.
  [[nodiscard]] std::optional<std::int64_t> waiting() const;

 private:
  [[nodiscard]] std::optional<std::int64_t> grant_next();
  void forget_replaced();

  std::vector<std::int64_t> taken_;  // ascending; the one under way among them
  std::optional<std::int64_t> under_way_;
  std::vector<std::int64_t> skipped_;
  std::int64_t good_through_ = -1;
};

}  // namespace train::actors
