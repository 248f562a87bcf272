#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::data {

/// Member of an object; null if missing or if `object` is not an object.
[[nodiscard]] const nlohmann::json& json_member(const nlohmann::json& object, std::string_view key);
/// The member if it is a string.
[[nodiscard]] std::optional<std::string> json_text(const nlohmann::json& object,
                                                   std::string_view key);
/// The member if it is a boolean, otherwise `otherwise`.
[[nodiscard]] bool json_flag(const nlohmann::json& object, std::string_view key, bool otherwise);
/// The member if it is an unsigned 32-bit integer.
[[nodiscard]] std::optional<std::uint32_t> json_count(const nlohmann::json& object,
                                                      std::string_view key);

/// Calls `each` with the section, or, for a Sequence, with each section in its list `list_key`, at
/// any depth, until one fails. Null: no call.
[[nodiscard]] Status for_each_in_sequence(const nlohmann::json& section, std::string_view list_key,
                                          const std::function<Status(const nlohmann::json&)>& each);

}  // namespace train::data
