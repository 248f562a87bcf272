#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Peak learning rate = a * (b + weights without embedding and head) ^ d.
struct LrFormula {
  std::string optimizer;
  std::optional<double> kappa;            ///< For optimizers that have one.
  std::optional<std::int64_t> sequences;  ///< Sequences per step it applies to; nullopt: any.
  double a = 0.0;
  double b = 0.0;
  double d = 0.0;
};

/// Dimensions of a model from its number of heads, and learning rates from its size. The keys of
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
  std::string name;  ///< For messages: a path, or the name of the built-in table.
  std::vector<ScalingRule> rules;

  /// Null if no rule has this name.
  [[nodiscard]] const ScalingRule* find(std::string_view rule) const;
};

/// Errors (user): invalid TOML; a key that is missing, unknown, of another type or out of range.
/// One line "place:line: ...". Pure.
[[nodiscard]] Result<ScalingTable> parse_scaling_table(std::string_view text,
                                                       const std::string& place);

/// Loads the file at `path`, or the built-in rules if it is empty. Blocks on the file system.
/// Errors (user): those of parse_scaling_table; the file cannot be read.
[[nodiscard]] Result<ScalingTable> load_scaling_table(const std::string& path);

/// configs/scaling_rules.toml at the time of the build.
[[nodiscard]] std::string_view built_in_scaling_rules();

/// Model that a rule derives from a number of heads.
struct ScaledModel {
  std::int64_t heads = 0;
  std::int64_t layers = 0;
  std::int64_t head_dim = 0;
  std::int64_t embedding_dim = 0;
  std::int64_t mlp_hidden = 0;
  std::int64_t non_embedding = 0;  ///< Weights by the rule's formula, without norms.
  std::int64_t total = 0;          ///< Including embedding and head.
};

/// Errors (user, without a place): heads below 1, too many, or too few for one layer.
[[nodiscard]] Result<ScaledModel> scaled_model(const ScalingRule& rule, std::int64_t heads);

/// Inputs of a learning rate formula.
struct LrQuery {
  std::string optimizer;
  double kappa = 0.85;         ///< Ignored by optimizers without one.
  std::int64_t sequences = 0;  ///< Sequences per step.
};

/// Peak learning rate. Formulas for exactly this number of sequences take precedence; among them
/// the nearest kappa. Errors (user, without a place): the rule has none for the optimizer; names
/// every pair of rule and optimizer in the table.
[[nodiscard]] Result<double> scaled_lr(const ScalingTable& table, const ScalingRule& rule,
                                       const LrQuery& query, std::int64_t non_embedding);

/// Steps of a run: tokens over tokens per step, rounded down; may be 0.
[[nodiscard]] std::int64_t scaled_steps(std::int64_t parameters, double tokens_per_parameter,
                                        std::int64_t tokens_per_step);

/// True if the optimizer's weight decay falls as wd / (1 + t / wd_ts), times the schedule without
/// its peak.
[[nodiscard]] bool has_decaying_weight_decay(std::string_view optimizer);

/// wd_ts of the rules: a tenth of the run, rounded down, at least 1.
[[nodiscard]] std::int64_t scaled_decay_time(std::int64_t steps);

/// optimizer.weight_decay of a run: omega / decay_time if the decay falls, otherwise omega / (lr *
/// steps), so that both decay the run as a whole by about omega.
[[nodiscard]] double scaled_weight_decay(std::string_view optimizer, double omega, double lr,
                                         std::int64_t steps, double decay_time);

/// optimizer.weight_decay by the rule for the other values of this configuration.
[[nodiscard]] double ruled_weight_decay(const RunConfig& config);

/// Applies [scaling] to a configuration that was read but not yet validated; no-op if scaling.rule
/// is "none" or nothing is left open. Sets model.arch, heads, layers, head_dim, embedding_dim,
/// mlp_hidden, run.steps, optimizer.lr and optimizer.weight_decay (and optimizer.wd_ts if that key
/// exists), except keys given in `places`; each value follows from those before it, given or not.
/// Records every key's origin in config.origins, and the keys set by the rule in `places`. Blocks
/// on the file system if scaling.table names a file. Errors (user, with a place): unknown rule, no
/// heads, no learning rate for the optimizer, an input of the rule out of range.
[[nodiscard]] Status apply_scaling(RunConfig& config, KeyPositions& places);

}  // namespace train::configs
