#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace train::cli {

/// The `bytes` tokenizer for prompts: one token per byte. An empty text is one end-of-text token,
/// so that there is always something to continue.
[[nodiscard]] std::vector<std::int32_t> encode_bytes(std::string_view text);

/// A token as it is shown: its byte; end-of-text as a line break; control characters as '?'.
[[nodiscard]] std::string show_byte(std::int32_t token);

}  // namespace train::cli
