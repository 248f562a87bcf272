#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/spec.hpp"
#include "engine/parameter.hpp"

namespace train::engine {

/// Traits of a unit that its callers have to know.
struct UnitTraits {
  bool makes_loss = false;  ///< The forward pass reads a lane's targets, writes its sums.
  /// The forward pass already writes the gradients of the weights, where they are requested.
  bool gradient_in_forward = false;
};

/// The parameters of every unit without allocating anything: what `--dry-run`, restore and the
/// optimizer groups need. Index as in Model.
struct UnitParameters {
  std::string name;
  std::vector<Parameter> parameters;
  std::int64_t element_count = 0;
  UnitTraits traits = {};

  /// Elements of its flat gradient; 0: all of it is frozen.
  [[nodiscard]] std::int64_t gradient_count() const;
};
[[nodiscard]] std::vector<UnitParameters> describe_units(const ModelSpec& spec);

/// The first unit with a parameter that is trained: the backward pass ends there. The number of
/// units: there is none.
[[nodiscard]] std::size_t lowest_trained_unit(const ModelSpec& spec);

}  // namespace train::engine
