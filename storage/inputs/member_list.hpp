#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace train::storage {

/// Members of an object for a message: "members "a", "b"", shortened if there are many.
[[nodiscard]] std::string member_list(const nlohmann::ordered_json& object);

}  // namespace train::storage
