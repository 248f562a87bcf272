#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/scaling_table.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// What a rule makes of a number of heads.
struct ScaledModel {
  std::int64_t heads = 0;
  std::int64_t layers = 0;
  std::int64_t head_dim = 0;
  std::int64_t embedding_dim = 0;
  std::int64_t mlp_hidden = 0;
  std::int64_t non_embedding = 0;  ///< Weights by the rule's formula, norms left out.
  std::int64_t total = 0;          ///< With embedding and head.
};

/// Errors (user, without a place): heads below 1, too many, or too few for one layer.
[[nodiscard]] Result<ScaledModel> scaled_model(const ScalingRule& rule, std::int64_t heads);

/// What a learning rate is looked up for.
struct LrQuery {
  std::string optimizer;
  double kappa = 0.85;         ///< Ignored by optimizers without one.
  std::int64_t sequences = 0;  ///< Of a step.
};

/// Peak learning rate. Formulas for exactly so many sequences come first; of those, the one with
/// the nearest kappa. Errors (user, without a place): the rule has none for the optimizer; names
/// every pair of rule and optimizer that the table has.
[[nodiscard]] Result<double> scaled_lr(const ScalingTable& table, const ScalingRule& rule,
                                       const LrQuery& query, std::int64_t non_embedding);

/// Steps of a run: tokens over tokens of a step, rounded down; may be 0.
[[nodiscard]] std::int64_t scaled_steps(std::int64_t parameters, double tokens_per_parameter,
                                        std::int64_t tokens_per_step);

/// Whether the optimizer's weight decay falls with the steps as wd / (1 + t / wd_ts), times the
/// schedule without its peak.
[[nodiscard]] bool has_decaying_weight_decay(std::string_view optimizer);

/// wd_ts of the rules: a tenth of the run, rounded down, at least 1.
[[nodiscard]] std::int64_t scaled_decay_time(std::int64_t steps);

/// optimizer.weight_decay of a run: omega / decay_time where the decay decays, else
/// omega / (lr * steps), so that in both the run as a whole is decayed by about omega.
[[nodiscard]] double scaled_weight_decay(std::string_view optimizer, double omega, double lr,
                                         std::int64_t steps, double decay_time);

/// Applies [scaling] to a configuration that was read but not validated yet; nothing where
/// scaling.rule is "none", and where nothing is left open. Sets model.arch, heads, layers,
/// head_dim, embedding_dim, mlp_hidden, run.steps, optimizer.lr and optimizer.weight_decay (and
/// optimizer.wd_ts where there is that key), but none that `places` says was given; each value
/// follows from those before it, given or not. Notes where every key's value is from in
/// config.origins, and in `places` that the rule set a key. Blocks on the file system where
/// scaling.table names a file. Errors (user, with a place): no such rule, no heads, no learning
/// rate for the optimizer, a value that the rule needs out of range.
[[nodiscard]] Status apply_scaling(RunConfig& config, KeyPositions& places);

}  // namespace train::configs
