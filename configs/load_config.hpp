#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Largest run file, profile or table of rules; anything larger is some other file.
inline constexpr std::size_t kLargestFile = 1 << 20;

/// Reads, overrides and validates the run file at `path`. Blocks on the file system.
///
/// `overrides` are "section.key=value", applied in order after the file; the value is a TOML value,
/// or for a text key a bare word. A list of texts accepts one text or bare word as a list of one,
/// and nothing as the empty list. Errors: always ErrorKind::user and one line that starts with the
/// place ("runs/a.toml:12", "--set run.steps=3"): file missing or unreadable, TOML syntax, unknown
/// section or key (names the nearest), wrong type, out of range, a required key missing,
/// contradictory keys. Warns (log) about the one value it changes: a warm-up of run.steps or more
/// is cut to a tenth of them, so that a run file can be tried for a few steps. `places`: receives
/// the place of each given key, for with_place(); may be null.
[[nodiscard]] Result<RunConfig> load_config(const std::string& path,
                                            std::span<const std::string> overrides = {},
                                            KeyPositions* places = nullptr);

/// Parses a run file from text; `file_name` is only used in places. Pure, except for that warning.
[[nodiscard]] Result<RunConfig> parse_config(std::string_view text, const std::string& file_name,
                                             std::span<const std::string> overrides = {},
                                             KeyPositions* places = nullptr);

}  // namespace train::configs
