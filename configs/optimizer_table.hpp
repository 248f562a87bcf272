#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "configs/field_table.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// One key of [optimizer] and its default with one optimizer.
struct OptimizerKey {
  std::string_view name;
  std::variant<double, std::int64_t, bool, std::string_view> value;
};

/// One optimizer as a run file sees it; besides these keys it has optimizer.name.
struct OptimizerEntry {
  std::string_view name;
  std::span<const OptimizerKey> keys;
};

/// All optimizers, joined by '|'.
inline constexpr std::string_view kOptimizerNames =
    "adamw|adamw-decaying-wd|adana|dana-mk4|dana-star|dana-star-mk4|ademamix|ademamix-decaying-wd|"
    "muon|d-muon";

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
[[nodiscard]] Status apply_optimizer(RunConfig& config, const Places& places);

/// Rules between keys of a validated [optimizer] and run.steps.
[[nodiscard]] Status check_optimizer(const RunConfig& config, const Places& places);

}  // namespace train::configs
