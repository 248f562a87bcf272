#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// A run file, a profile or a table of rules is a page of text; anything larger is some other file.
inline constexpr std::size_t kLargestFile = 1 << 20;

/// Reads, overrides and validates the run file at `path`. Blocks on the file system.
///
/// `overrides` are "section.key=value", applied in order after the file; the value is a TOML value,
/// or for a text key a bare word. A list of texts takes one text or a bare word as a list of one,
/// and nothing as the empty list.
/// Errors: always ErrorKind::user and one line that starts with the place ("runs/a.toml:12",
/// "--set run.steps=3"): no such file, not readable, TOML syntax, unknown section or key (names the
/// nearest), wrong type, out of range, a required key missing, keys that contradict each other.
/// Warns (log) of the one value that it changes: a warm-up of run.steps or more is cut to a tenth
/// of them, so that a run file can be tried for a few steps.
/// `places`: becomes where each key was set, for with_place(); null: nobody asks.
[[nodiscard]] Result<RunConfig> load_config(const std::string& path,
                                            std::span<const std::string> overrides = {},
                                            KeyPositions* places = nullptr);

/// The same from text; `file_name` is only used to name places. Pure, but
/// for that warning.
[[nodiscard]] Result<RunConfig> parse_config(std::string_view text, const std::string& file_name,
                                             std::span<const std::string> overrides = {},
                                             KeyPositions* places = nullptr);

}  // namespace train::configs
