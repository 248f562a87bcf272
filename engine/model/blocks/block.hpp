#pragma once

#include <string>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/workspace.hpp"
#include "engine/parameter_list.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// What a block needs while it is built: it adds its parameters to its unit and reserves its slots.
struct BlockContext {
  const kernels::KernelTable& kernels;
  ParameterList& parameters;
  Workspace& workspace;
  std::string prefix;  ///< "transformer.h.0.": starts the names of parameters and kept buffers.

  [[nodiscard]] BlockContext within(const std::string& part) const {
    return {kernels, parameters, workspace, prefix + part};
  }
};

/// One forward or backward call of a unit, as its blocks see it.
struct BlockCall {
  kernels::Stream& stream;
  ConstElements weights;  ///< Flat buffer of the unit.
  float* gradient;        ///< Flat buffer of the unit; nullptr in a forward pass.
  const Lane& lane;
};

}  // namespace train::engine
