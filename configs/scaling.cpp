#include "configs/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "configs/optimizer_table.hpp"

namespace train::configs {
namespace {

constexpr std::int64_t kLargestHeads = 1024;
constexpr double kLongestRun = 9e18;

/// "enoki with adamw, adana; qwen3 with adamw".
std::string pairs_of(const ScalingTable& table) {
  std::vector<std::string> parts;
  for (const ScalingRule& rule : table.rules) {
    std::vector<std::string> optimizers;
    for (const LrFormula& formula : rule.lr) {
      if (std::find(optimizers.begin(), optimizers.end(), formula.optimizer) == optimizers.end()) {
        optimizers.push_back(formula.optimizer);
      }
    }
    parts.push_back(fmt::format("{} with {}", rule.name, fmt::join(optimizers, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// The formula of the nearest kappa, the first of equals, among those for exactly `sequences`.
const LrFormula* nearest_formula(const ScalingRule& rule, const LrQuery& query,
                                 std::optional<std::int64_t> sequences) {
  const LrFormula* best = nullptr;
  double best_distance = 0.0;
  for (const LrFormula& formula : rule.lr) {
    if (formula.optimizer != query.optimizer || formula.sequences != sequences) {
      continue;
    }
    const double distance = std::abs(formula.kappa.value_or(query.kappa) - query.kappa);
    if (best == nullptr || distance < best_distance) {
      best = &formula;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

Result<ScaledModel> scaled_model(const ScalingRule& rule, std::int64_t heads) {
  if (heads < 1 || heads > kLargestHeads) {
    return user_error(
        fmt::format("heads must be 1 .. {} for a scaling rule, found {}", kLargestHeads, heads));
  }
  ScaledModel model;
  model.heads = heads;
  model.layers = heads * rule.layers_times / rule.layers_over;
  if (model.layers < 1) {
    return user_error(
        fmt::format("{} heads give no layer by the rule \"{}\" ({} * heads / {}); "
                    "give more heads",
                    heads, rule.name, rule.layers_times, rule.layers_over));
  }
  model.head_dim = rule.head_dim;
  model.embedding_dim = heads * rule.head_dim;
  model.mlp_hidden = rule.mlp_ratio * model.embedding_dim;
  const double width = static_cast<double>(model.embedding_dim);
  const double weights = width * width * static_cast<double>(rule.block_weights * model.layers) +
                         2.0 * width * static_cast<double>(rule.vocab_size);
  if (model.mlp_hidden > kLargestHeads * kLargestHeads || weights > 1e15) {
    return user_error(
        fmt::format("{} heads give a model of {:.0f} weights by the rule \"{}\", "
                    "more than there can be; give fewer heads",
                    heads, weights, rule.name));
  }
  model.non_embedding =
      rule.block_weights * model.embedding_dim * model.embedding_dim * model.layers;
  model.total = model.non_embedding + 2 * model.embedding_dim * rule.vocab_size;
  return model;
}

Result<double> scaled_lr(const ScalingTable& table, const ScalingRule& rule, const LrQuery& query,
                         std::int64_t non_embedding) {
  const LrFormula* formula = nearest_formula(rule, query, query.sequences);
  if (formula == nullptr) {
    formula = nearest_formula(rule, query, std::nullopt);
  }
  if (formula == nullptr) {
    return user_error(
        fmt::format("{} has no learning rate for {} with the optimizer \"{}\"; it has {}",
                    table.name, rule.name, query.optimizer, pairs_of(table)));
  }
  return formula->a * std::pow(formula->b + static_cast<double>(non_embedding), formula->d);
}

std::int64_t scaled_steps(std::int64_t parameters, double tokens_per_parameter,
                          std::int64_t tokens_per_step) {
  const double steps =
      tokens_per_parameter * static_cast<double>(parameters) / static_cast<double>(tokens_per_step);
  return static_cast<std::int64_t>(std::min(steps, kLongestRun));
}

bool has_decaying_weight_decay(std::string_view optimizer) {
  // has_key() is true of an optimizer that nobody knows.
  return find_optimizer(optimizer) != nullptr && has_key(optimizer, "wd_decaying");
}

std::int64_t scaled_decay_time(std::int64_t steps) { return std::max<std::int64_t>(1, steps / 10); }

double scaled_weight_decay(std::string_view optimizer, double omega, double lr, std::int64_t steps,
                           double decay_time) {
  return has_decaying_weight_decay(optimizer) ? omega / decay_time
                                              : omega / (lr * static_cast<double>(steps));
}

}  // namespace train::configs
