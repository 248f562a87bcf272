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

/// Distribution of initial values: the first three are normal with the standard deviation that the
/// run's scheme gives the kind, `range` is uniform between two bounds. Those of state spaces (Gu &
/// Dao 2023): `log_place` is the logarithm of an element's place in the last dimension, from 1;
/// `step_bias` what softplus makes a step of, whose logarithm is uniform between two bounds'.
enum class InitKind : std::uint8_t {
  linear,
  residual_output,
  embedding,
  range,
  log_place,
  step_bias
};

/// The initial values of a parameter.
struct Initializer {
  Initializer() = default;
  Initializer(InitKind scheme_kind) : kind(scheme_kind) {}  // NOLINT: a kind is one
  [[nodiscard]] static Initializer uniform(double low, double high) {
    Initializer init(InitKind::range);
    init.low = low;
    init.high = high;
    return init;
  }
  [[nodiscard]] static Initializer constant(double value) { return uniform(value, value); }

  /// Steps from `low` to `high`, each at least `least`. REQUIRES: 0 < low <= high, 0 < least.
  [[nodiscard]] static Initializer step(double low, double high, double least) {
    Initializer init(InitKind::step_bias);
    init.low = low;
    init.high = high;
    init.least = least;
    return init;
  }

  [[nodiscard]] bool is_constant() const { return kind == InitKind::range && low == high; }

  InitKind kind = InitKind::linear;
  double low = 0.0, high = 0.0;  ///< Bounds of `range`, and of the steps of `step_bias`.
  double least = 0.0;            ///< The least step of `step_bias`.
};

/// One named tensor of a unit, with its attributes: callers read the attributes, and decide nothing
/// by name or shape. Ranks divide dimension 0, whose slices are the rows.
struct Parameter {
  std::string name;  ///< As the reference names it: "transformer.h.0.attn.c_attn.weight".
  std::vector<std::int64_t> shape = {};  ///< Any number of dimensions; one: norm weights, biases.
  std::int64_t fan_in = 0;               ///< Inputs of a product's matrix; 0: cols().
  ParameterGroup group = ParameterGroup::decay;
  double lr_scale = 1.0;  ///< Factor of the run's learning rate.
  Initializer init = {};
  bool linear = false;  ///< Matrix of a product: FLOPs count its elements.
  bool muon = false;    ///< A matrix that Muon may take, or of more than two dimensions one a row.
  bool adaptable = false;        ///< Matrix of a linear map that [lora] may choose.
  bool adapted_by_name = false;  ///< "all-linear" does not mean it: routers, experts.
  bool is_head = false;          ///< The head's own matrix.
  double used_share = 1.0;       ///< Share of elements that one token uses: less for experts.
  bool adapter = false;          ///< Part of an AdapterBlock: no published model has it.
  /// Layers read it in fp32 where they read other weights in bf16; its gradient travels as theirs.
  bool exact = false;
  /// Numbers that the model counts: its gradient is a lane's count, and an update sets it to the
  /// sum over the lanes of the step. Optimizers, norms and published files leave it out.
  bool tallied = false;
  /// A tallied vector that one rank has whole: an update adds `tally_rate` times sign(mean of the
  /// counts - count) to each element (kernels::ChoiceBiasParams), and published files have it.
  bool balances = false;
  double tally_rate = 0.0;
  std::string frozen_with = {};  ///< The parameter with which it is frozen; empty: decided alone.
  /// True if the weights never change: the parameter has no gradient, no master besides the compute
  /// weights, and no optimizer state.
  bool frozen = false;
  std::int64_t offset = 0;    ///< First element in the unit's flat weights (a multiple of 16).
  std::int64_t gradient = 0;  ///< First element in its flat gradient, of trained parameters alone.

  [[nodiscard]] std::int64_t rows() const { return shape.empty() ? 0 : shape.front(); }
  /// Elements of a row.
  [[nodiscard]] std::int64_t cols() const {
    std::int64_t elements = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) {
      elements *= shape[i];
    }
    return elements;
  }
  [[nodiscard]] std::int64_t count() const { return rows() * cols(); }
  /// True if published files have no such parameter.
  [[nodiscard]] bool unpublished() const { return tallied && !balances; }
  [[nodiscard]] bool is_vector() const { return shape.size() == 1; }
  /// Elements of flat and packed buffers that `values` of it have: of bf16 two hold one of fp32,
  /// and all buffers are laid out alike.
  [[nodiscard]] std::int64_t places(std::int64_t values) const {
    return exact ? 2 * values : values;
  }
};

/// Elements that a tensor takes in a flat or packed buffer: rounded up to a 64-byte boundary.
[[nodiscard]] constexpr std::int64_t padded(std::int64_t elements) {
  constexpr std::int64_t kAlignment = 16;
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

/// Place of a parameter in its unit's flat buffers.
struct ParameterPlace {
  std::int64_t offset = 0;    ///< First weight.
  std::int64_t gradient = 0;  ///< First gradient element, unless it is frozen.
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
    const std::int64_t places = padded(parameter.places(parameter.count()));
    element_count_ += places;
    gradient_count_ += parameter.frozen ? 0 : places;
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
