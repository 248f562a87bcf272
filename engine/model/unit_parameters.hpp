#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/spec.hpp"
#include "engine/parameter.hpp"

namespace train::engine {

/// The parameters of every unit without allocating anything: what `--dry-run`, restore and the
/// optimizer groups need. Index as in Model.
struct UnitParameters {
  std::string name;
  std::vector<Parameter> parameters;
  std::int64_t element_count = 0;
};
[[nodiscard]] std::vector<UnitParameters> describe_units(const ModelSpec& spec);

}  // namespace train::engine
