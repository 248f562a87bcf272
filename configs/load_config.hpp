#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Largest run file, profile or table of rules; anything larger is some other file.
inline constexpr std::size_t kLargestFile = 1 << 20;

/// Warm-up of a run of `steps` steps whose file says `warmup`: one that leaves nothing of the run
/// is cut to a tenth of the steps.
[[nodiscard]] inline std::int64_t cut_warmup(std::int64_t warmup, std::int64_t steps) {
  return warmup < steps ? warmup : steps / 10;
}

/// Error (user) at `place` for a name that is no key; hints at the key that may be meant.
[[nodiscard]] Error unknown_key(const std::string& place, const std::string& key);

/// Reads, overrides and validates the run file at `path`. Blocks on the file system.
///
/// `overrides` are "section.key=value", applied in order after the file; the value is a TOML value,
/// or for a text key a bare word. A list of texts accepts one text or bare word as a list of one,
/// and nothing as the empty list; a list of integers accepts one integer. Errors: always
/// ErrorKind::user, a line for each mistake that starts with its place ("runs/a.toml:12", "--set
/// run.steps=3"): file missing or unreadable, TOML syntax, unknown section or key (names the
/// nearest), wrong type, out of range, a required key missing, contradictory keys. Warns (log)
/// about the one value it changes: a warm-up of run.steps or more is cut to a tenth of them, so
/// that a run file can be tried for a few steps. `places`: receives the place of each given key,
/// for with_place(); may be null.
[[nodiscard]] Result<RunConfig> load_config(const std::string& path,
                                            std::span<const std::string> overrides = {},
                                            KeyPositions* places = nullptr);

/// Parses a run file from text; `file_name` is only used in places. Pure, except for that warning.
[[nodiscard]] Result<RunConfig> parse_config(std::string_view text, const std::string& file_name,
                                             std::span<const std::string> overrides = {},
                                             KeyPositions* places = nullptr);

}  // namespace train::configs
