#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "storage/tokenizer/formats/tokenizer_settings.hpp"
#include "storage/tokenizer/tokenizer_parts.hpp"

namespace train::storage {

/// Adds the tokens that the files beside a tokenizer name and its own file lacks, as transformers
/// does: those of tokenizer_config.json's added_tokens_decoder, or else of added_tokens.json, and
/// what `settings` has names for. Of tokens that both have, the flags of the list count.
/// Errors (user, names the file): an entry that is no token; one whose id is not the one that it
/// gets, behind the vocabulary in the order of the ids.
[[nodiscard]] Status add_tokens_beside(TokenizerParts& parts, const TokenizerSettings& settings,
                                       const std::filesystem::path& folder);

}  // namespace train::storage
