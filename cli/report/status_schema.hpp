#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace train::cli {

/// What of a status is not of the kind that its name has: "ranks is no list of objects"; empty:
/// nothing, so that whoever reads it by these names finds text, numbers in a range that may be
/// added and turned into integers, lists of objects and objects where he looks for them. Names
/// that are not known may hold anything.
[[nodiscard]] std::string status_fault(const nlohmann::ordered_json& status);

}  // namespace train::cli
