#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/run_config.hpp"

namespace train::configs {

/// Value that differs between two run files.
struct KeyChange {
  std::string path;              ///< "run.steps"; of a table within a key: "data.parts[1].weight".
  std::string before;            ///< As TOML, on one line; empty: not set.
  std::string now;               ///< Value in the second file; likewise.
  const Field* field = nullptr;  ///< Entry of all_fields(); null: unknown key.
  /// The value is derived from run.steps, before and now (a cut warm-up, a scaling rule's decay).
  bool follows_length = false;

  /// Rule of the key; a member of a source has one of its own.
  [[nodiscard]] BetweenStarts rule() const;
  /// Values for display: "not set" if missing.
  [[nodiscard]] std::string_view before_text() const;
  [[nodiscard]] std::string_view now_text() const;
};

/// Lists all values that differ between two run files, known keys in table order, others at the
/// end. CF-4 (nothing skipped): every difference is listed, whatever its kind: tables and lists of
/// tables are walked, everything else is compared as a whole, numbers by their bits. Pure. Errors
/// (user, without a place): invalid TOML.
[[nodiscard]] Result<std::vector<KeyChange>> key_changes(std::string_view before,
                                                         std::string_view now);

/// Differences between the texts of to_toml(), which hold all of a configuration (CF-2); they say
/// which ones follow the length of the run.
[[nodiscard]] std::vector<KeyChange> key_changes(const RunConfig& before, const RunConfig& now);

/// Checks the keys of `--accept-config`. Errors (user): a key is unknown, never changes within a
/// run (says why), or may change without being accepted.
[[nodiscard]] Status check_accepted(std::span<const std::string> keys);

}  // namespace train::configs
