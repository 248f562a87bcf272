#pragma once

#include <string>
#include <string_view>

namespace train::configs {

/// `text` as a TOML string on one line, for any bytes.
[[nodiscard]] std::string toml_quoted(std::string_view text);

/// Shortest decimal that reads back as the same double, always recognisable as a float. REQUIRES:
/// finite.
[[nodiscard]] std::string float_text(double value);

}  // namespace train::configs
