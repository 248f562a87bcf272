#pragma once

#include <span>
#include <string>
#include <string_view>

#include "configs/fields/field_table.hpp"
#include "configs/fields/objective_list.hpp"
#include "configs/fields/option_key.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Keys that belong to one name of a section, besides "name".
struct NamedOptions {
  std::string_view name;
  std::span<const OptionKey> keys;
};

/// Section whose `name` selects its keys: [optimizer], [objective].
struct NamedSection {
  std::string_view section;  ///< "optimizer"
  std::span<const NamedOptions> entries;
  const std::string& (*chosen)(const RunConfig&);  ///< Value of its key "name".

  /// The entry, or null.
  [[nodiscard]] const NamedOptions* find(std::string_view name) const;
  /// True if `name` has this key. An unknown name has every key.
  [[nodiscard]] bool has_key(std::string_view name, std::string_view key) const;
  /// False for keys of this section that the chosen name lacks.
  [[nodiscard]] bool applies(const Field& field, const RunConfig& config) const;
  /// Sets the defaults of `entry` for keys without a place in `places` (null: for all).
  void set_defaults(const NamedOptions& entry, RunConfig& config, const KeyPositions* places) const;
  /// Sets keys without a place to the defaults of the chosen name. Mistakes: each given key that
  /// belongs to other names, which it lists. REQUIRES: the name is known.
  void apply(RunConfig& config, const KeyPositions& places, Mistakes& mistakes) const;
};

/// Names in objective_list.hpp, joined by '|'.
#define TRAIN_OBJECTIVE_NAME(identifier, name, form, keys) "|" name
inline constexpr std::string_view kObjectiveNames =
    std::string_view(TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_NAME)).substr(1);
#undef TRAIN_OBJECTIVE_NAME

/// [objective], from objective_list.hpp.
[[nodiscard]] const NamedSection& objective_options();

/// REQUIRES: an objective of that name exists.
[[nodiscard]] ObjectiveForm objective_form(std::string_view objective);

/// False for keys that the run's optimizer or objective lacks.
[[nodiscard]] bool applies(const Field& field, const RunConfig& config);

}  // namespace train::configs
