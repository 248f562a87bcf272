#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"
#include "engine/model/model_shape.hpp"

namespace train::engine::testing {

/// Flat weights and gradients of a whole model, for tests that drive a Model without an engine.
struct ModelMemory {
  using Flat = std::vector<std::vector<float>>;

  /// Weights as `init` has them; every element of the gradients is `dirt`.
  explicit ModelMemory(const ModelSpec& spec, float dirt = 0.0F,
                       const InitOptions& init = {.seed = 3})
      : units(describe_units(spec)) {
    for (const UnitParameters& unit : units) {
      std::vector<float>& flat = weights.emplace_back(size_of(unit), 0.0F);
      gradients.emplace_back(size_of(unit), dirt);
      for (const Parameter& parameter : unit.parameters) {
        const std::span<float> values(flat.data() + parameter.offset,
                                      static_cast<std::size_t>(parameter.count()));
        fill_initial_rows(parameter, spec, init, 0, parameter.rows(), values);
      }
    }
  }

  [[nodiscard]] UnitMemory of(std::size_t unit) {
    return {.weights = weights[unit].data(),
            .gradient = gradients[unit].data(),
            .tied_weights = weights.front().data(),
            .tied_gradient = gradients.front().data()};
  }
  [[nodiscard]] static std::size_t size_of(const UnitParameters& unit) {
    return static_cast<std::size_t>(unit.element_count);
  }

  std::vector<UnitParameters> units;
  Flat weights, gradients;
};

/// Forward and, with lane.with_gradient, backward of all units.
inline void run_lane(kernels::Stream& stream, Model& model, ModelMemory& memory, const Lane& lane) {
  for (std::size_t u = 0; u < model.unit_count(); ++u) {
    model.unit(u).forward(stream, memory.of(u), lane);
  }
  for (std::size_t u = lane.with_gradient ? model.unit_count() : 0; u-- > 0;) {
    model.unit(u).backward(stream, memory.of(u), lane);
  }
}

}  // namespace train::engine::testing
