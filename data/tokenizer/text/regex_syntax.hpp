#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::data {

/// Rewrites `pattern` (Oniguruma's Ruby syntax) for PCRE2 with the same matches. Errors (user): a
/// construct without an equivalent.
[[nodiscard]] Result<std::string> rewritten_for_pcre2(std::string_view pattern);

/// PCRE2 pattern that matches `text` literally.
[[nodiscard]] std::string quoted_for_pcre2(std::string_view text);

}  // namespace train::data
