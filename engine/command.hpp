#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace train::engine {

/// The commands that every rank follows, and what a lane is run for: training (forward and
/// backward; the gradient enters the step's sum), evaluation (forward alone, on validation tokens),
/// the search of the layer where NaN or Inf first appear (the lanes of a training step once
/// more, counting; no weight changes), log-probabilities of the reference (forward alone, on
/// rows in the data's order, as many lanes as a training step has), the first of a step's two
/// passes (Pass: forward and backward; the reduced gradient is kept for the train_step that
/// comes next), the same search through the lanes of that first pass, or log-probabilities of the
/// documents of scored lanes (forward alone; DocumentScores).
enum class CommandKind : std::uint8_t {
  train_step,
  evaluate,
  snapshot,
  find_nonfinite,
  reference,
  gradient,
  find_nonfinite_first,
  score,
  stop
};

struct CommandName {
  const char* trace;   ///< In traces of what ran when.
  const char* report;  ///< In texts for people.
};
inline constexpr std::array<CommandName, 9> kCommandNames = {
    {{"train_step", "TrainStep"},
     {"evaluate", "Evaluate"},
     {"snapshot", "TakeSnapshot"},
     {"find_nonfinite", "FindNonfinite"},
     {"reference", "ComputeReference"},
     {"gradient", "KeepGradient"},
     {"find_nonfinite_first", "FindNonfiniteFirst"},
     {"score", "ScoreChoices"},
     {"stop", "StopRank"}}};

[[nodiscard]] constexpr const CommandName& name_of(CommandKind kind) {
  return kCommandNames.at(static_cast<std::size_t>(kind));
}

/// Its lanes have forward passes alone.
[[nodiscard]] constexpr bool forward_only(CommandKind kind) {
  return kind == CommandKind::evaluate || kind == CommandKind::score ||
         kind == CommandKind::reference;
}

/// Its lanes' gradients are summed and reduced.
[[nodiscard]] constexpr bool reduces_gradients(CommandKind kind) {
  return kind == CommandKind::train_step || kind == CommandKind::gradient;
}
/// Its lanes count what is not finite.
[[nodiscard]] constexpr bool finds_nonfinite(CommandKind kind) {
  return kind == CommandKind::find_nonfinite || kind == CommandKind::find_nonfinite_first;
}
/// Its lanes have backward passes.
[[nodiscard]] constexpr bool has_backward(CommandKind kind) {
  return reduces_gradients(kind) || finds_nonfinite(kind);
}
/// Its lanes are of the first of a step's two passes.
[[nodiscard]] constexpr bool of_first_pass(CommandKind kind) {
  return kind == CommandKind::gradient || kind == CommandKind::find_nonfinite_first;
}

/// Names one lane of one command; `slot` holds its tokens.
struct LaneWork {
  CommandKind kind = CommandKind::train_step;
  std::int64_t step = 0;
  std::int64_t lane = 0;
  std::int32_t slot = 0;
  std::int64_t round = 0;     ///< Of this rank's lanes (LaneSchedule).
  std::uint64_t command = 0;  ///< Number of the command in the conductor's stream.
};

/// Where one unit's pass finds the shared memory that its group has reserved.
struct UnitBuffers {
  std::int32_t gather = -1;  ///< Reservation of the gathered weights; -1: they are resident.
  /// Reservation of the gradient buffer of the lane's gradient (backward of training).
  std::int32_t gradient_buffer = -1;
};

}  // namespace train::engine
