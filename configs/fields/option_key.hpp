#pragma once

#include <optional>
#include <string_view>

namespace train::configs {

/// Key of a section whose keys depend on its name ([optimizer], [objective]).
struct OptionKey {
  constexpr OptionKey(const char* key) : name(key) {}
  constexpr OptionKey(const char* key, double value) : name(key), default_value(value) {}

  std::string_view name;
  std::optional<double> default_value;  ///< Default for that name, if not that of the section.
};

}  // namespace train::configs
