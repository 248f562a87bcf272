#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/index/step_journal.hpp"
#include "engine/model/model.hpp"

namespace train::cli {

/// What units and tensors of a run are called: numbers in StepRecord are in these orders.
struct ModelNames {
  std::vector<std::string> units;    ///< In the order of the forward pass.
  std::vector<std::string> tensors;  ///< Sorted: engine::tensor_names().
  /// By tensor: its unit, and its place in the order of the model, weights before the optimizer's
  /// states of them.
  std::vector<std::size_t> unit_of;
  std::vector<std::size_t> place_of;

  static ModelNames of(const std::vector<engine::UnitParameters>& units,
                       std::vector<std::string> tensors);
  /// "tensor model.blocks.1.attn.q of layer block 1"
  [[nodiscard]] std::string described(std::size_t tensor) const;
};

/// Where two computations of a step first part, in the order in which a step computes.
enum class StepPart : std::uint8_t {
  learning_rate,
  loss,           ///< The forward pass, or the weights before it.
  gradient,       ///< The backward pass of some units.
  gradient_norm,  ///< Of all units together.
  update,         ///< Weights or optimizer states after the step.
};

struct StepDifference {
  std::int64_t step = 0;
  StepPart part = StepPart::loss;
  /// gradient: units, update: tensors, that differ; the one that was computed first in front.
  std::vector<std::size_t> where;
  std::string values;  ///< "2.5 (4004000000000000) and 2.6 (…)", or empty.
};

/// Compares the bits of two records of one step; what one of them lacks is not compared. Digests or
/// norms of different number differ in all. Empty: the same.
[[nodiscard]] std::optional<StepDifference> compare_steps(const checkpoint::StepRecord& journal,
                                                          const checkpoint::StepRecord& replayed,
                                                          const ModelNames& names);

/// The tensors whose digests differ, in the order of the model.
[[nodiscard]] std::vector<std::size_t> differing_tensors(const std::vector<std::uint64_t>& a,
                                                         const std::vector<std::uint64_t>& b,
                                                         const ModelNames& names);

/// "tensor … of layer …, the first of 3 that differ (then …, …)"
[[nodiscard]] std::string tensors_text(const std::vector<std::size_t>& tensors,
                                       const ModelNames& names);

/// One line: step, part, layer and tensor as far as they can be known. `digests_agreed`: the last
/// step before it after which all tensors are known to be the same.
[[nodiscard]] std::string describe(const StepDifference& difference, const ModelNames& names,
                                   std::int64_t digests_agreed);

}  // namespace train::cli
