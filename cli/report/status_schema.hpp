#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace train::cli {

/// Type error in a status: "ranks is no list of objects"; empty: none. Then readers find text,
/// numbers in a range that allows sums and conversion to integers, lists of objects and objects
/// where the names promise them. Unknown names may hold anything.
[[nodiscard]] std::string status_fault(const nlohmann::ordered_json& status);

}  // namespace train::cli
