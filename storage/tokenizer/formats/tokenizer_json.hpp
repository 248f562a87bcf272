#pragma once

#include <string_view>

#include "base/result.hpp"
#include "storage/tokenizer/tokenizer_parts.hpp"

namespace train::storage {

/// Reads the text of a tokenizer.json. Errors (user): not JSON; a part that is not supported, or
/// not as the format has it, by its name. Memory: of the order of the text.
[[nodiscard]] Result<TokenizerParts> read_tokenizer_json(std::string_view text);

}  // namespace train::storage
