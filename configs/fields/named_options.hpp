#pragma once

#include <span>
#include <string>
#include <string_view>

#include "configs/fields/field_table.hpp"
#include "configs/fields/option_key.hpp"
#include "configs/objective_list.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// What one name of a section may be followed by; besides these keys it has "name".
struct NamedOptions {
  std::string_view name;
  std::span<const OptionKey> keys;
};

/// A section whose `name` decides which of its keys there are: [optimizer], [objective].
struct NamedSection {
  std::string_view section;  ///< "optimizer"
  std::span<const NamedOptions> entries;
  const std::string& (*chosen)(const RunConfig&);  ///< The value of its key "name".

  /// The entry, or null.
  [[nodiscard]] const NamedOptions* find(std::string_view name) const;
  /// `name` has this key. An unknown name has every key.
  [[nodiscard]] bool has_key(std::string_view name, std::string_view key) const;
  /// False of keys of this section that the chosen name lacks.
  [[nodiscard]] bool applies(const Field& field, const RunConfig& config) const;
  /// Sets the defaults of `entry` where `places` (null: nowhere) has no place.
  void set_defaults(const NamedOptions& entry, RunConfig& config, const KeyPositions* places) const;
  /// Gives keys that have no place the defaults of the chosen name. Errors (user): an unknown name;
  /// a key with a place that belongs to others, whom it names.
  [[nodiscard]] Status apply(RunConfig& config, const KeyPositions& places) const;
};

/// The names of objective_list.hpp, joined by '|'.
#define TRAIN_OBJECTIVE_NAME(identifier, name, form, keys) "|" name
inline constexpr std::string_view kObjectiveNames =
    std::string_view(TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_NAME)).substr(1);
#undef TRAIN_OBJECTIVE_NAME

/// [objective] as objective_list.hpp has it.
[[nodiscard]] const NamedSection& objective_options();

/// REQUIRES: there is one of that name.
[[nodiscard]] ObjectiveForm objective_form(std::string_view objective);

/// False of keys that the run's optimizer or objective lacks.
[[nodiscard]] bool applies(const Field& field, const RunConfig& config);

}  // namespace train::configs
