#include "data/tokenizer/formats/json_members.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace train::data {

const nlohmann::json& json_member(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json absent;
  if (!object.is_object()) {
    return absent;
  }
  const auto member = object.find(std::string(key));
  return member == object.end() ? absent : *member;
}

std::optional<std::string> json_text(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& member = json_member(object, key);
  return member.is_string() ? std::optional(member.get_ref<const std::string&>()) : std::nullopt;
}

bool json_flag(const nlohmann::json& object, std::string_view key, bool otherwise) {
  const nlohmann::json& member = json_member(object, key);
  return member.is_boolean() ? member.get<bool>() : otherwise;
}

std::optional<std::uint32_t> json_count(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json& member = json_member(object, key);
  if (!member.is_number_unsigned() ||
      member.get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max()) {
    return std::nullopt;
  }
  return member.get<std::uint32_t>();
}

Status for_each_in_sequence(const nlohmann::json& section, std::string_view list_key,
                            const std::function<Status(const nlohmann::json&)>& each) {
  if (section.is_null()) {
    return {};
  }
  if (json_text(section, "type") != "Sequence") {
    return each(section);
  }
  const nlohmann::json& list = json_member(section, list_key);
  if (!list.is_array()) {
    return user_error(fmt::format("a Sequence lacks its list {}", list_key));
  }
  for (const nlohmann::json& part : list) {
    TRAIN_RETURN_IF_ERROR(for_each_in_sequence(part, list_key, each));
  }
  return {};
}

}  // namespace train::data
