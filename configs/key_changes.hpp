#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/run_config.hpp"

namespace train::configs {

/// One value that two run files have differently.
struct KeyChange {
  std::string path;              ///< "run.steps"; of a table within a key: "data.parts[1].weight".
  std::string before;            ///< As TOML, on one line; empty: it was not set.
  std::string now;               ///< The same.
  const Field* field = nullptr;  ///< Of all_fields(); null: no key of the table.

  [[nodiscard]] BetweenStarts rule() const {
    return field == nullptr ? BetweenStarts::stays : field->between_starts;
  }
  /// The values for people: "not set" where there is none.
  [[nodiscard]] std::string_view before_text() const;
  [[nodiscard]] std::string_view now_text() const;
};

/// Every value in which two run files differ, those of the table of keys in its order, others at
/// the end. CF-4 (nothing skipped): whatever is written in one of them and is not the same in the
/// other is in here, of whatever kind it is: tables and lists of tables are gone through, all else
/// is compared as a whole, numbers by their bits. Pure. Errors (user, without a place): no TOML.
[[nodiscard]] Result<std::vector<KeyChange>> key_changes(std::string_view before,
                                                         std::string_view now);

/// The same of what to_toml() writes, which is all that a configuration says (CF-2).
[[nodiscard]] std::vector<KeyChange> key_changes(const RunConfig& before, const RunConfig& now);

}  // namespace train::configs
