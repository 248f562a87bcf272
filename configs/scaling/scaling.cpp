#include "configs/scaling/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/math/fixed_math.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/fields/optimizer_table.hpp"
#include "configs/words/nearest.hpp"

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

/// Formula of the nearest kappa, the first on ties, among those for exactly `sequences`.
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

/// All keys that a rule may set; optimizer.wd_ts if the optimizer has that key.
constexpr std::array<std::string_view, 10> kRuled = {
    "model.arch",     "model.layers",        "model.heads",
    "model.head_dim", "model.embedding_dim", "model.mlp_hidden",
    "run.steps",      "optimizer.lr",        "optimizer.weight_decay",
    "optimizer.wd_ts"};

/// True for the resolved configuration of a run, which must be readable without the table.
bool all_given(const RunConfig& config, const KeyPositions& places) {
  return std::all_of(kRuled.begin(), kRuled.end(), [&](std::string_view key) {
    return !applies(*find_field(key), config) || places.by_key.contains(key);
  });
}

/// Sets keys by name; given keys are kept.
class RuleSetter {
 public:
  RuleSetter(RunConfig& config, KeyPositions& places)
      : config_(config), places_(places), given_(places.by_key) {
    place_ = fmt::format("{} (scaling.rule)", places.of("scaling.rule"));
  }

  [[nodiscard]] bool given(std::string_view key) const { return given_.contains(key); }

  template <class Value>
  void set(const std::string& key, Value value) {
    const Field* field = find_field(key);
    if (given(key) || !applies(*field, config_)) {
      return;
    }
    std::visit(
        [&](auto* target) {
          using Target = std::remove_pointer_t<decltype(target)>;
          if constexpr (std::is_same_v<Target, double> && std::is_arithmetic_v<Value>) {
            *target = static_cast<Target>(value);
          } else if constexpr (std::is_same_v<Target, Value>) {
            *target = value;
          }
        },
        field->locate(config_));
    places_.by_key[key] = place_;
    ruled_.insert(key);
  }

  /// Records the origins of all keys.
  void note_origins() const {
    for (const Field& field : all_fields()) {
      const std::string key = field.key();
      const auto found = given_.find(key);
      const char* from = ruled_.contains(key) ? "rule" : "default";
      if (found != given_.end()) {
        from = found->second.starts_with("--set ") ? "--set" : "file";
      }
      config_.origins[key] = from;
    }
  }

 private:
  RunConfig& config_;
  KeyPositions& places_;
  const std::map<std::string, std::string, std::less<>> given_;
  std::string place_;
  std::set<std::string> ruled_;
};

Error at(const KeyPositions& places, std::string_view key, const std::string& what) {
  return user_error(fmt::format("{}: {}", places.of(key), what));
}

/// Checks the ranges of the rule's inputs before it computes.
Status check_inputs(const RunConfig& config, const KeyPositions& places) {
  for (const Field& field : all_fields()) {
    const std::string key = field.key();
    const bool needed =
        field.section == "scaling" || field.section == "batch" || key == "data.sequence_length" ||
        key == "optimizer.name" || key == "optimizer.kappa" || key == "optimizer.wd_ts" ||
        ((key == "optimizer.lr" || key == "run.steps") && places.by_key.contains(key));
    if (needed) {
      TRAIN_RETURN_IF_ERROR(check_value(field, config, places));
    }
  }
  if (config.scaling.heads == 0) {
    return at(places, "scaling.rule",
              fmt::format("scaling.rule = \"{}\" needs scaling.heads = ... (found 0)",
                          config.scaling.rule));
  }
  return {};
}

void set_model(RuleSetter& setter, const ScalingRule& rule, const ScaledModel& model) {
  setter.set("model.arch", rule.arch);
  setter.set("model.layers", model.layers);
  setter.set("model.heads", model.heads);
  setter.set("model.head_dim", model.head_dim);
  setter.set("model.embedding_dim", model.embedding_dim);
  setter.set("model.mlp_hidden", model.mlp_hidden);
}

Status set_training(RuleSetter& setter, RunConfig& config, const KeyPositions& places,
                    const ScalingTable& table, const ScalingRule& rule, const ScaledModel& model) {
  const ScalingSection& scaling = config.scaling;
  const std::int64_t sequences = config.batch.lanes * config.batch.micro_batch;
  const std::int64_t parameters = scaling.params == "total" ? model.total : model.non_embedding;
  setter.set("run.steps", scaled_steps(parameters, scaling.tokens_per_parameter,
                                       sequences * config.data.sequence_length));
  if (config.run.steps < 1) {
    return at(
        places, "scaling.rule",
        fmt::format("{} tokens are less than one step of {} sequences; raise "
                    "scaling.tokens_per_parameter or lower batch.lanes",
                    scaling.tokens_per_parameter * static_cast<double>(parameters), sequences));
  }
  if (!setter.given("optimizer.lr")) {
    const auto lr = scaled_lr(table, rule,
                              {.optimizer = config.optimizer.name,
                               .kappa = config.optimizer.kappa,
                               .sequences = sequences},
                              model.non_embedding);
    if (!lr) {
      return at(places, "optimizer.name",
                fmt::format("{}; choose one of them or set optimizer.lr", lr.error().message));
    }
    setter.set("optimizer.lr", *lr);
  }
  setter.set("optimizer.wd_ts", scaled_decay_time(config.run.steps));
  setter.set("optimizer.weight_decay", ruled_weight_decay(config));
  return {};
}

std::vector<std::string> names_of(const ScalingTable& table) {
  std::vector<std::string> names = {"none"};
  for (const ScalingRule& rule : table.rules) {
    names.push_back(rule.name);
  }
  return names;
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
        fmt::format("{}: no learning rate for {} with the optimizer \"{}\"; there is one for {}",
                    table.name, rule.name, query.optimizer, pairs_of(table)));
  }
  return formula->a * fixed::pow(formula->b + static_cast<double>(non_embedding), formula->d);
}

std::int64_t scaled_steps(std::int64_t parameters, double tokens_per_parameter,
                          std::int64_t tokens_per_step) {
  const double steps =
      tokens_per_parameter * static_cast<double>(parameters) / static_cast<double>(tokens_per_step);
  return static_cast<std::int64_t>(std::min(steps, kLongestRun));
}

bool has_decaying_weight_decay(std::string_view optimizer) {
  // has_key() is true for an unknown optimizer.
  return find_optimizer(optimizer) != nullptr && has_key(optimizer, "wd_decaying");
}

std::int64_t scaled_decay_time(std::int64_t steps) { return std::max<std::int64_t>(1, steps / 10); }

double scaled_weight_decay(std::string_view optimizer, double omega, double lr, std::int64_t steps,
                           double decay_time) {
  return has_decaying_weight_decay(optimizer) ? omega / decay_time
                                              : omega / (lr * static_cast<double>(steps));
}

double ruled_weight_decay(const RunConfig& config) {
  const OptimizerSection& optimizer = config.optimizer;
  const double decay = scaled_weight_decay(optimizer.name, config.scaling.omega, optimizer.lr,
                                           config.run.steps, optimizer.wd_ts);
  const bool of_lr =
      has_key(optimizer.name, "wd_coupling") && optimizer.wd_coupling == "lr_coupled";
  return of_lr ? decay / optimizer.lr : decay;
}

Status apply_scaling(RunConfig& config, KeyPositions& places) {
  const ScalingSection& scaling = config.scaling;
  if (scaling.rule == "none" || all_given(config, places)) {
    return {};
  }
  const auto table = load_scaling_table(scaling.table);
  if (!table) {
    return at(places, "scaling.table", table.error().message);
  }
  const ScalingRule* rule = table->find(scaling.rule);
  if (rule == nullptr) {
    const std::vector<std::string> names = names_of(*table);
    return at(places, "scaling.rule",
              fmt::format("scaling.rule is \"{}\"; there are \"{}\"{}", scaling.rule,
                          fmt::join(names, "\", \""), did_you_mean(scaling.rule, names)));
  }
  TRAIN_RETURN_IF_ERROR(check_inputs(config, places));
  const auto model = scaled_model(*rule, scaling.heads);
  if (!model) {
    return at(places, "scaling.heads", "scaling.heads: " + model.error().message);
  }
  RuleSetter setter(config, places);
  set_model(setter, *rule, *model);
  if (config.model.arch != rule->arch) {
    return at(places, "model.arch",
              fmt::format("model.arch is \"{}\", but scaling.rule \"{}\" is for \"{}\"",
                          config.model.arch, rule->name, rule->arch));
  }
  TRAIN_RETURN_IF_ERROR(set_training(setter, config, places, *table, *rule, *model));
  setter.note_origins();
  return {};
}

}  // namespace train::configs
