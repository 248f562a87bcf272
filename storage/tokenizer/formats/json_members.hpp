#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// A member of an object, or a null: also where `object` is none.
[[nodiscard]] const nlohmann::json& json_member(const nlohmann::json& object, std::string_view key);
/// The member if it is a text.
[[nodiscard]] std::optional<std::string> json_text(const nlohmann::json& object,
                                                   std::string_view key);
/// The member if it is true or false, else `otherwise`.
[[nodiscard]] bool json_flag(const nlohmann::json& object, std::string_view key, bool otherwise);
/// The member if it is a count of 32 bits.
[[nodiscard]] std::optional<std::uint32_t> json_count(const nlohmann::json& object,
                                                      std::string_view key);

/// Calls `each` with the section, or, if that is a Sequence, with those in its list `list_key`, at
/// any depth, until one fails. Nothing of a null.
[[nodiscard]] Status for_each_in_sequence(const nlohmann::json& section, std::string_view list_key,
                                          const std::function<Status(const nlohmann::json&)>& each);

}  // namespace train::storage
