#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "data/tokenizer/formats/tokenizer_settings.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"

namespace train::data {

/// Adds tokens that the files beside a tokenizer list and its own file lacks, as transformers does:
/// those of tokenizer_config.json's added_tokens_decoder, otherwise of added_tokens.json, and the
/// named ones of `settings`. If both have a token, the list's flags apply. Errors (user, names the
/// file): an entry that is not a token; an entry whose id differs from its place behind the
/// vocabulary in id order.
[[nodiscard]] Status add_tokens_beside(TokenizerParts& parts, const TokenizerSettings& settings,
                                       const std::filesystem::path& folder);

}  // namespace train::data
