#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::configs {

/// Peak learning rate = a * (b + weights without embedding and head) ^ d.
struct LrFormula {
  std::string optimizer;
  std::optional<double> kappa;            ///< Of optimizers that have one.
  std::optional<std::int64_t> sequences;  ///< Only for steps of so many; none: for any.
  double a = 0.0;
  double b = 0.0;
  double d = 0.0;
};

/// Dimensions of a model by its number of heads, and learning rates by its size. The keys of
/// configs/scaling_rules.toml.
struct ScalingRule {
  std::string name;
  std::string arch;  ///< model.arch
  std::int64_t head_dim = 0;
  std::int64_t layers_times = 0;  ///< layers = heads * layers_times / layers_over
  std::int64_t layers_over = 0;
  std::int64_t mlp_ratio = 0;
  std::int64_t block_weights = 0;
  std::int64_t vocab_size = 0;
  std::vector<LrFormula> lr;
};

struct ScalingTable {
  std::string name;  ///< For messages: a path, or what the built-in one is called.
  std::vector<ScalingRule> rules;

  /// Null if there is none of this name.
  [[nodiscard]] const ScalingRule* find(std::string_view rule) const;
};

/// Errors (user): not TOML; a key that is missing, unknown, of another type or out of range. One
/// line "place:line: ...". Pure.
[[nodiscard]] Result<ScalingTable> parse_scaling_table(std::string_view text,
                                                       const std::string& place);

/// The file at `path`, or where it is empty the rules that are built into the program. Blocks on
/// the file system. Errors (user): those of parse_scaling_table; the file cannot be read.
[[nodiscard]] Result<ScalingTable> load_scaling_table(const std::string& path);

/// configs/scaling_rules.toml as it was when the program was built.
[[nodiscard]] std::string_view built_in_scaling_rules();

}  // namespace train::configs
