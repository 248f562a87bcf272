#pragma once

#include <string_view>

#include "base/result.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"

namespace train::data {

/// Parses tokenizer.json. Errors (user): invalid JSON; an unsupported or malformed part, by name.
/// Memory is proportional to the text.
[[nodiscard]] Result<TokenizerParts> read_tokenizer_json(std::string_view text);

}  // namespace train::data
