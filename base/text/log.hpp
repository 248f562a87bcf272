#pragma once

#include <cstdint>
#include <string_view>

namespace train {

/// Structured log lines of the form `event key=value ...` to stderr (spdlog behind it).
/// Thread-safe; never throws.
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

enum class LogLevel : std::uint8_t { info, warning };
/// Drops lines below `least` from now on. Returns the previous level, initially info.
LogLevel log_from(LogLevel least);

}  // namespace train
