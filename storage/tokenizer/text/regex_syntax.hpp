#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

namespace train::storage {

/// `pattern` (Oniguruma's Ruby syntax) as PCRE2 has to be given it to match the same. Errors
/// (user): a construct that has no such form.
[[nodiscard]] Result<std::string> rewritten_for_pcre2(std::string_view pattern);

/// A pattern for PCRE2 that matches `text` literally.
[[nodiscard]] std::string quoted_for_pcre2(std::string_view text);

}  // namespace train::storage
