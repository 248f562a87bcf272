#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "configs/key_changes.hpp"
#include "configs/run_config.hpp"

// Keys of a run that have other values than at the start before. All of these are pure.
namespace train::actors {

/// The kind of their event, in events.jsonl and in the index.
inline constexpr const char* kConfigChanged = "config_changed";

/// The event's text, "step=20 key=run.steps old=20 new=40": values as TOML, or "not set"; `step`:
/// those before it were done with the old value.
[[nodiscard]] std::string change_text(const configs::KeyChange& change, std::int64_t step);

/// The step of such a text; none: it is another text.
[[nodiscard]] std::optional<std::int64_t> change_step(std::string_view text);

/// Warning about an allowed change that matters to the steps after the first `step`; empty: it does
/// not. `config` is the new one. Of run.steps: the learning rate of the next step by the old length
/// and by the new one.
[[nodiscard]] std::string change_warning(const configs::KeyChange& change,
                                         const configs::RunConfig& config, std::int64_t step);

}  // namespace train::actors
