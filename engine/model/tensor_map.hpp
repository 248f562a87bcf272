#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/parameter.hpp"

namespace train::engine {

struct BranchSpec;
struct ModelSpec;
struct NormSpec;

/// A kind of files: how it names tensors, and how their elements lie.
enum class Dialect : std::uint8_t {
  hf,    ///< Safetensors files as transformers reads them: a spec's own names and shapes.
  gguf,  ///< Names and shapes of llama.cpp.
  peft,  ///< Adapters alone: the names of hf behind "base_model.model.".
  /// As hf, with one tensor for a matrix of all experts of a layer: what transformers 5 has in
  /// memory.
  stacked,
};

/// The order of elements in a file.
enum class TensorOrder : std::uint8_t {
  same,
  transposed,    ///< The last two axes exchanged.
  rotary_pairs,  ///< Rows of each head in pairs (i, i + D/2).
  by_parts,      ///< [Q | K | V], ours [q | k | v] head by head.
};

/// `count` places of an axis from `first` on; 0: all of it.
struct AxisSlice {
  std::size_t axis = 0;
  std::int64_t first = 0, count = 0;
};

/// Place in a stored tensor that has `count` of a shape along a first axis of its own; 0: none.
struct StackPlace {
  std::int64_t place = 0, count = 0;
};

/// Function from a parameter's element to the stored one.
enum class StoredAs : std::uint8_t {
  same,
  rate,  ///< -exp(x): a scan's decay rate, whose logarithm is the parameter.
};

/// How a dialect stores a parameter, or a slice of it, if not as the spec does. Plain data, stated
/// by the block that owns the parameter. Several rules may name one parameter, each a slice of it,
/// or one stored tensor.
struct TensorRule {
  std::string parameter;  ///< Name below the layer's prefix; or the stem of a weight and its bias.
  std::string stored;     ///< Stored name. "{}": number of the place of axis 0, one tensor each.
  TensorOrder order = TensorOrder::same;
  std::int64_t heads = 0;  ///< Heads for rotary_pairs and by_parts.
  float added = 0.0F;      ///< Stored values are the parameter's plus this: gains of 1 + w.
  AxisSlice slice = {};    ///< Stored slice of the parameter.
  AxisSlice within = {};  ///< Place of `slice` in the stored tensor, whose axis has `count` places.
  std::int64_t step = 1;  ///< Places of `within`'s axis from one of the slice to the next.
  StackPlace stack = {};  ///< Position in a stack of experts.
  StoredAs as = StoredAs::same;
  /// Stored shape, of the same elements in the same order; empty: as the fields above give.
  std::vector<std::int64_t> shape = {};
};

/// Rule of a norm's weight.
[[nodiscard]] TensorRule norm_rule(const NormSpec& norm, std::string stored);
/// Adds the rules of the norms before and behind a branch, where it has them.
void add_norm_rules(const BranchSpec& branch, const std::array<std::string, 2>& stored,
                    std::vector<TensorRule>& rules);

/// A loop over elements of a parameter and of a stored tensor: their number, the step in each.
struct TensorAxis {
  std::int64_t count = 1, parameter = 1, stored = 1;
};

/// Intersection of a stored tensor and a parameter.
struct TensorPart {
  std::string name;                      ///< Name of the stored tensor.
  std::vector<std::int64_t> shape = {};  ///< Whole shape of the stored tensor.
  std::int64_t first = 0, stored = 0;    ///< The first element of either.
  std::vector<TensorAxis> axes = {};     ///< The outermost first, as the parameter's elements lie.
  float added = 0.0F;                    ///< As TensorRule's.
  StoredAs as = StoredAs::same;
};

/// A parameter and all that it is stored as; nothing: the dialect has no name for it.
struct MappedParameter {
  Parameter parameter;
  std::vector<TensorPart> parts = {};

  /// True if the parameter is one stored tensor, element by element.
  [[nodiscard]] bool is_copy() const;
};

/// All parameters of the model that the dialect's files hold, in the order of its units: those of
/// adapters are peft's alone. Each element of a parameter is in one part.
[[nodiscard]] std::vector<MappedParameter> tensor_map(const ModelSpec& model, Dialect dialect);

/// The parts of one parameter by the rules that name it. REQUIRES: they hold each element once.
[[nodiscard]] std::vector<TensorPart> parts_of(const Parameter& parameter,
                                               std::span<const TensorRule> rules);

/// Fills `out` with elements of the stored tensor from `first` on.
using ReadStored =
    std::function<Status(const std::string& name, std::int64_t first, std::span<float> out)>;

/// Rows [first_row, first_row + rows) of a parameter. Reads what they are stored as and, where runs
/// of elements are short, what lies between them; takes memory for that. Errors: those of `read`;
/// (user) a rate that is not negative.
Status read_rows(const MappedParameter& mapped, std::int64_t first_row, std::int64_t rows,
                 const ReadStored& read, std::span<float> out);

/// The rows of the parameter, with rows of `cols` elements, that a part has elements of.
struct RowRange {
  std::int64_t first = 0, count = 0;
};
[[nodiscard]] RowRange rows_of(const TensorPart& part, std::int64_t cols);

/// Writes what `elements`, the parameter's from `first` on, have in the part to the whole stored
/// tensor.
void store(const TensorPart& part, std::int64_t first, std::span<const float> elements,
           std::span<float> stored);

}  // namespace train::engine
