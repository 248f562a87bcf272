#pragma once

#include <string>

namespace train {

/// The name of this machine; `unknown` where it has none.
[[nodiscard]] std::string host_name(const char* unknown = "unknown");

/// The word by which the kernel tells this start of this machine from all others; "" where it says
/// none.
[[nodiscard]] std::string boot_id();

}  // namespace train
