#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/run_config.hpp"

namespace train::configs {

/// Where each key got its value, for messages.
struct KeyPositions {
  std::string file;                                        ///< Place of a key nobody set.
  std::map<std::string, std::string, std::less<>> by_key;  ///< "run.steps" -> "a.toml:3".

  [[nodiscard]] const std::string& of(std::string_view key) const;
};

/// Range, choices and form of one key's value. Errors (user): one line that begins with its place.
[[nodiscard]] Status check_value(const Field& field, const RunConfig& config,
                                 const KeyPositions& places);

/// Ranges, names and rules between keys; the first broken one is the error (ErrorKind::user).
/// CF-3 (bounded): of a valid configuration, tokens of a run, elements of any tensor and bytes of
/// any buffer fit in int64, so later arithmetic on them cannot overflow.
[[nodiscard]] Status validate_config(const RunConfig& config, const KeyPositions& places);

/// One entry of parallel.strategy_by_unit.
struct UnitStrategy {
  std::string pattern;   ///< Of unit names.
  std::string strategy;  ///< As in parallel.strategy; not checked.
};

/// "block * = full", blanks around both parts ignored; nothing if a part is missing.
[[nodiscard]] std::optional<UnitStrategy> parse_unit_strategy(std::string_view rule);

}  // namespace train::configs
