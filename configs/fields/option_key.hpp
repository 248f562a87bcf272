#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace train::configs {

/// Key of a section whose keys depend on its name ([optimizer], [objective]), with its default for
/// that name.
struct OptionKey {
  std::string_view name;
  std::variant<double, std::int64_t, std::uint64_t, bool, std::string_view> value;
};

}  // namespace train::configs
