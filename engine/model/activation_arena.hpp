#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train::engine {

/// A unit and bytes that belong to it.
struct UnitBytes {
  std::size_t unit = 0;
  std::size_t size_bytes = 0;
};

/// Where activations and the gradients that take their place lie.
struct ArenaPlan {
  std::vector<std::size_t> kept;       ///< Offsets, as the slots were given.
  std::vector<std::size_t> gradients;  ///< Offsets, as the gradients were given.
  std::size_t size_bytes = 0;
};

/// Places both in one piece of memory: activations from its begin, in the order of units, gradients
/// from its end, from the highest unit down. A unit's backward pass writes its gradient when the
/// activations of the units above it are no longer needed, so that the two may overlap; it is the
/// memory of one lane only: the next lane's forward pass writes over the gradients.
///
/// `kept`: slots that must last from the forward pass of their unit to its backward pass, units
/// rising. `gradients`: of a group of units, named by its highest one, in any order.
[[nodiscard]] ArenaPlan plan_arena(const std::vector<UnitBytes>& kept,
                                   const std::vector<UnitBytes>& gradients);

/// Bytes rounded up to whole cache lines, on which everything in shared memory begins.
[[nodiscard]] std::size_t whole_lines(std::size_t size_bytes);

}  // namespace train::engine
