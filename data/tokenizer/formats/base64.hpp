#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace train::data {

/// Decodes base64; nullopt if the text has other characters.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace train::data
