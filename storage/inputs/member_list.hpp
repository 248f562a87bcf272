#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace train::storage {

/// The members of an object for a message: "members "a", "b"", the first ones of many.
[[nodiscard]] std::string member_list(const nlohmann::ordered_json& object);

}  // namespace train::storage
