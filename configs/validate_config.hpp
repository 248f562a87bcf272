#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/run_config.hpp"

namespace train::configs {

/// Places where keys were set, for messages.
struct KeyPositions {
  std::string file;                                        ///< Place of a key that was not set.
  std::map<std::string, std::string, std::less<>> by_key;  ///< "run.steps" -> "a.toml:3".

  [[nodiscard]] const std::string& of(std::string_view key) const;
};

/// Mistakes of a run file, to be shown all at once.
class Mistakes {
 public:
  /// Adds the error of `status`, if it is one.
  void add(const Status& status);
  [[nodiscard]] bool none() const { return texts_.empty(); }
  /// One error (user) with a line for each mistake, in the order of the file's lines; those of the
  /// command line at the end.
  [[nodiscard]] Status result() const;

 private:
  std::vector<std::string> texts_;
};

/// Checks range, choices and form of one key's value. Errors (user): one line that begins with its
/// place.
[[nodiscard]] Status check_value(const Field& field, const RunConfig& config,
                                 const KeyPositions& places);

/// Checks ranges and names, and if they hold, rules between keys; returns all violations, as
/// Mistakes does, one a key. CF-3 (bounded): for a valid configuration, tokens of a run, elements
/// of any tensor and bytes of any buffer fit in int64, so later arithmetic on them cannot overflow.
[[nodiscard]] Status validate_config(const RunConfig& config, const KeyPositions& places);

/// Entry of parallel.strategy_by_unit.
struct UnitStrategy {
  std::string pattern;   ///< Pattern of unit names.
  std::string strategy;  ///< As in parallel.strategy; not validated.
};

/// Parses "block * = full", ignoring blanks around both parts; nullopt if a part is missing.
[[nodiscard]] std::optional<UnitStrategy> parse_unit_strategy(std::string_view rule);

}  // namespace train::configs
