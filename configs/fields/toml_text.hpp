#pragma once

#include <string>
#include <string_view>

namespace train::configs {

/// `text` as a TOML string on one line, whatever bytes it has.
[[nodiscard]] std::string toml_quoted(std::string_view text);

/// The shortest decimal that reads back as the same double, always recognisable as a float.
/// REQUIRES: it is finite.
[[nodiscard]] std::string float_text(double value);

}  // namespace train::configs
