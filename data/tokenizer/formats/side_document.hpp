#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "base/result.hpp"

namespace train::data {

/// JSON object in a file beside the tokenizer, in file order; empty if the file is missing. Errors:
/// read errors; (user, names the file) not a JSON object.
[[nodiscard]] Result<nlohmann::ordered_json> side_members(const std::filesystem::path& path);
/// side_members() without the order.
[[nodiscard]] Result<nlohmann::json> side_document(const std::filesystem::path& path);

}  // namespace train::data
