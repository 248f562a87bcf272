#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace train::storage {

/// The bytes that a text in base64 stands for; nothing if it has other letters.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

}  // namespace train::storage
