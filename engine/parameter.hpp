#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::engine {

/// Weight-decay group: "decay" is every linear weight (head included), "no_decay" norms and
/// embedding, also where the head uses the embedding's matrix.
enum class ParameterGroup : std::uint8_t { decay, no_decay };

/// What decides the standard deviation of the initial values.
enum class InitKind : std::uint8_t { linear, residual_output, embedding, norm };

/// One named tensor of a unit: [rows, cols], or [rows] when `vector` (norm weights; cols is 1
/// then).
struct Parameter {
  std::string name;  ///< As the reference names it: "transformer.h.0.attn.c_attn.weight".
  std::int64_t rows = 0;
  std::int64_t cols = 1;
  bool vector = false;
  ParameterGroup group = ParameterGroup::decay;
  InitKind init = InitKind::linear;
  std::int64_t offset = 0;  ///< First element in the unit's flat buffers (a multiple of 16).

  [[nodiscard]] std::int64_t count() const { return rows * cols; }
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    return vector ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{rows, cols};
  }
};

}  // namespace train::engine
