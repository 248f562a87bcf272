#pragma once

#include <string>

namespace train {

/// The name of this machine; `unknown` where it has none.
[[nodiscard]] std::string host_name(const char* unknown = "unknown");

}  // namespace train
