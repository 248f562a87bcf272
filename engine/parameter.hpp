#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace train::engine {

/// Weight-decay group: "decay" is every linear weight (head included), "no_decay" norms and
/// embedding, also where the head uses the embedding's matrix.
enum class ParameterGroup : std::uint8_t { decay, no_decay };

/// What decides the standard deviation of the initial values.
/// norm: ones; zero: biases, and gains that are added to one; uniform: between +-1/sqrt(fan_in).
enum class InitKind : std::uint8_t { linear, residual_output, embedding, norm, zero, uniform };

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
  double used_share = 1.0;  ///< Of its elements, by one token: less of experts.
  bool adapter = false;     ///< Of an AdapterBlock: no published model has it.
  /// Its weights never change: it has no gradient, no master beside the weights that are computed
  /// with, and no state of the optimizer.
  bool frozen = false;
  std::int64_t offset = 0;    ///< First element in the unit's flat weights (a multiple of 16),
  std::int64_t gradient = 0;  ///< and in its flat gradient, which has trained parameters alone.

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

/// Where a block finds a parameter in its unit's flat buffers.
struct ParameterPlace {
  std::int64_t offset = 0;    ///< Of its weights.
  std::int64_t gradient = 0;  ///< Of its gradient, unless it is frozen.
  bool frozen = true;
};

/// The parameters of one unit as its blocks add them; gives each its place in the flat buffers.
class ParameterList {
 public:
  /// `frozen`: whether the parameter is not trained; none: all are.
  explicit ParameterList(std::function<bool(const Parameter&)> frozen = {})
      : frozen_(std::move(frozen)) {}

  /// Appends `parameter` and returns its place. Offsets are multiples of 16 elements (64 bytes).
  ParameterPlace add(Parameter parameter) {
    parameter.frozen = frozen_ && frozen_(parameter);
    parameter.offset = element_count_;
    parameter.gradient = gradient_count_;
    element_count_ = padded(element_count_ + parameter.count());
    gradient_count_ += parameter.frozen ? 0 : padded(parameter.count());
    parameters_.push_back(std::move(parameter));
    const Parameter& added = parameters_.back();
    return {added.offset, added.gradient, added.frozen};
  }

  [[nodiscard]] const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Elements of the flat weights, and of the flat gradient; padding included.
  [[nodiscard]] std::int64_t element_count() const { return element_count_; }
  [[nodiscard]] std::int64_t gradient_count() const { return gradient_count_; }

 private:
  std::function<bool(const Parameter&)> frozen_;
  std::vector<Parameter> parameters_;
  std::int64_t element_count_ = 0;
  std::int64_t gradient_count_ = 0;
};

}  // namespace train::engine
