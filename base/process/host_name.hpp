#pragma once

#include <string>

namespace train {

/// Name of this machine; `unknown` if it has none.
[[nodiscard]] std::string host_name(const char* unknown = "unknown");

/// The kernel's id of this boot, unique among all machines and boots; "" if unavailable.
[[nodiscard]] std::string boot_id();

}  // namespace train
