#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "configs/key_changes.hpp"
#include "configs/run_config.hpp"

// Config keys whose values differ from the start before. All functions are pure.
namespace train::run {

/// Kind of the event, in events.jsonl and in the index.
inline constexpr const char* kConfigChanged = "config_changed";

/// Text of the event, "step=20 key=run.steps old=20 new=40": values as TOML, or "not set"; `step`:
/// the steps before it used the old value.
[[nodiscard]] std::string change_text(const configs::KeyChange& change, std::int64_t step);

/// Parses the step from such a text; nullopt for any other text.
[[nodiscard]] std::optional<std::int64_t> change_step(std::string_view text);

/// Key whose value such a text says has changed; null: unknown.
[[nodiscard]] const configs::Field* changed_field(std::string_view text);

/// Warning about an allowed change that affects the steps after the first `step`; empty: it does
/// not. `config` is the new one. For run.steps: the next step's learning rate under the old and the
/// new length, and for a longer run the schedules that need not know it.
[[nodiscard]] std::string change_warning(const configs::KeyChange& change,
                                         const configs::RunConfig& config, std::int64_t step);

}  // namespace train::run
