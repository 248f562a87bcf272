#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace train::engine {

/// Weight-decay group: "decay" is every linear weight (head included), "no_decay" norms and
/// embedding, also where the head uses the embedding's matrix.
enum class ParameterGroup : std::uint8_t { decay, no_decay };

/// What decides the standard deviation of the initial values.
/// norm: ones; zero: biases, and gains that are added to one.
enum class InitKind : std::uint8_t { linear, residual_output, embedding, norm, zero };

/// One named tensor of a unit: [rows, cols], or [rows] when `vector` (norm weights; cols is 1
/// then).
struct Parameter {
  std::string name;  ///< As the reference names it: "transformer.h.0.attn.c_attn.weight".
  std::int64_t rows = 0;
  std::int64_t cols = 1;
  std::int64_t fan_in = 0;  ///< Of a product's matrix: its inputs; 0: cols.
  bool vector = false;
  ParameterGroup group = ParameterGroup::decay;
  InitKind init = InitKind::linear;
  bool is_head = false;     ///< The head's own matrix.
  std::int64_t offset = 0;  ///< First element in the unit's flat buffers (a multiple of 16).

  [[nodiscard]] std::int64_t count() const { return rows * cols; }
  [[nodiscard]] std::vector<std::int64_t> shape() const {
    return vector ? std::vector<std::int64_t>{rows} : std::vector<std::int64_t>{rows, cols};
  }
};

/// Elements up to the next 64-byte boundary: what a tensor takes in a flat or packed buffer.
[[nodiscard]] constexpr std::int64_t padded(std::int64_t elements) {
  constexpr std::int64_t kAlignment = 16;
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

/// The parameters of one unit as its blocks add them; gives each its place in the flat buffers.
class ParameterList {
 public:
  /// Appends `parameter` and returns its offset. Offsets are multiples of 16 elements (64 bytes).
  std::int64_t add(Parameter parameter) {
    parameter.offset = element_count_;
    element_count_ = padded(element_count_ + parameter.count());
    parameters_.push_back(std::move(parameter));
    return parameters_.back().offset;
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Elements of the flat buffers, padding included.
  [[nodiscard]] std::int64_t element_count() const { return element_count_; }

 private:
  std::vector<Parameter> parameters_;
  std::int64_t element_count_ = 0;
};

}  // namespace train::engine
