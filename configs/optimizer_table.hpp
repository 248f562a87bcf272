#pragma once

#include <span>
#include <string_view>

#include "configs/field_table.hpp"
#include "configs/optimizer_list.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// One optimizer as a run file sees it; besides these keys it has optimizer.name.
struct OptimizerEntry {
  std::string_view name;
  std::span<const OptimizerKey> keys;
};

/// The names of optimizer_list.hpp, joined by '|'.
#define TRAIN_OPTIMIZER_NAME(identifier, name, keys) "|" name
inline constexpr std::string_view kOptimizerNames =
    std::string_view(TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_NAME)).substr(1);
#undef TRAIN_OPTIMIZER_NAME

[[nodiscard]] std::span<const OptimizerEntry> all_optimizers();

/// The optimizer's entry, or null.
[[nodiscard]] const OptimizerEntry* find_optimizer(std::string_view name);

/// The optimizer has the key "wd_ts", say. An unknown optimizer has every key.
[[nodiscard]] bool has_key(std::string_view optimizer, std::string_view key);

/// False of keys of [optimizer] that config.optimizer.name lacks.
[[nodiscard]] bool applies(const Field& field, const RunConfig& config);

/// A section with the defaults of the optimizer `name`. REQUIRES: there is one.
[[nodiscard]] OptimizerSection default_optimizer(std::string_view name);

/// Gives the keys of config.optimizer that have no place their optimizer's defaults. Errors (user):
/// an unknown optimizer; a key with a place that belongs to others, whom it names.
[[nodiscard]] Status apply_optimizer(RunConfig& config, const KeyPositions& places);

/// Rules between keys of a validated [optimizer] and run.steps.
[[nodiscard]] Status check_optimizer(const RunConfig& config, const KeyPositions& places);

}  // namespace train::configs
