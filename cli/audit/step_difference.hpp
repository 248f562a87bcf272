#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/index/step_journal.hpp"
#include "engine/model/model.hpp"

namespace train::cli {

/// Names of a run's units and tensors, whose indices StepRecord uses.
struct ModelNames {
  std::vector<std::string> units;    ///< In the order of the forward pass.
  std::vector<std::string> tensors;  ///< Sorted: engine::tensor_names().
  /// For each tensor: its unit, and its place in model order, weights before their optimizer
  /// states.
  std::vector<std::size_t> unit_of;
  std::vector<std::size_t> place_of;

  static ModelNames of(const std::vector<engine::UnitParameters>& units,
                       std::vector<std::string> tensors);
  /// "tensor model.blocks.1.attn.q of layer block 1"
  [[nodiscard]] std::string described(std::size_t tensor) const;
};

/// First stage of a step at which two computations differ, in execution order.
enum class StepPart : std::uint8_t {
  learning_rate,
  loss,           ///< The forward pass, or the weights before it.
  gradient,       ///< The backward pass of some units.
  gradient_norm,  ///< Gradient norm of all units.
  update,         ///< Weights or optimizer states after the step.
};

struct StepDifference {
  std::int64_t step = 0;
  StepPart part = StepPart::loss;
  /// Units (gradient) or tensors (update) that differ, the first computed one first.
  std::vector<std::size_t> where;
  std::string values;  ///< "2.5 (4004000000000000) and 2.6 (…)", or empty.
};

/// Compares two records of one step bitwise; values missing in one are skipped. Lists of digests or
/// norms of different lengths count as different everywhere. nullopt: equal.
[[nodiscard]] std::optional<StepDifference> compare_steps(const checkpoint::StepRecord& journal,
                                                          const checkpoint::StepRecord& replayed,
                                                          const ModelNames& names);

/// Tensors with differing digests, in model order.
[[nodiscard]] std::vector<std::size_t> differing_tensors(const std::vector<std::uint64_t>& a,
                                                         const std::vector<std::uint64_t>& b,
                                                         const ModelNames& names);

/// "tensor … of layer …, the first of 3 that differ (then …, …)"
[[nodiscard]] std::string tensors_text(const std::vector<std::size_t>& tensors,
                                       const ModelNames& names);

/// One line: step, stage, layer and tensor as far as known. `digests_agreed`: last earlier step
/// after which all tensors are known to be equal.
[[nodiscard]] std::string describe(const StepDifference& difference, const ModelNames& names,
                                   std::int64_t digests_agreed);

}  // namespace train::cli
