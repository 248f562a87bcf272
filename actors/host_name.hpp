#pragma once

#include <string>

namespace train::actors {

/// The name of this machine; `unknown` where the system has none.
[[nodiscard]] std::string host_name(const char* unknown = "unknown");

}  // namespace train::actors
