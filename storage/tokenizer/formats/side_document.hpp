#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace train::storage {

/// A document beside the tokenizer; null if there is none that can be read.
[[nodiscard]] nlohmann::json side_document(const std::filesystem::path& path);

}  // namespace train::storage
