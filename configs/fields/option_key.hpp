#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

namespace train::configs {

/// One key of a section whose keys depend on what it names ([optimizer], [objective]), and its
/// default there.
struct OptionKey {
  std::string_view name;
  std::variant<double, std::int64_t, std::uint64_t, bool, std::string_view> value;
};

}  // namespace train::configs
