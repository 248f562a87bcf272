#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"

namespace train::storage {

/// The JSON object in a file beside the tokenizer, its members in the order of the file; an empty
/// one if there is no such file. Errors: that of reading it; (user, names the file) no JSON object.
[[nodiscard]] Result<nlohmann::ordered_json> side_members(const std::filesystem::path& path);
/// The same, without an order.
[[nodiscard]] Result<nlohmann::json> side_document(const std::filesystem::path& path);

}  // namespace train::storage
