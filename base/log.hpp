#pragma once

#include <string_view>

namespace train {

/// Structured log lines of the form `event key=value ...` to stderr (spdlog behind it).
/// Thread-safe; never throws.
void log_info(std::string_view line);
void log_warning(std::string_view line);
void log_error(std::string_view line);

/// Adds a file that receives every log line as well. Returns false if it cannot be opened.
/// `quiet_terminal`: only warnings and errors reach stderr from now on.
bool log_to_file(std::string_view path, bool quiet_terminal);

}  // namespace train
