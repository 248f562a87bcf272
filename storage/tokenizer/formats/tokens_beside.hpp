#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "storage/tokenizer/tokenizer_parts.hpp"

namespace train::storage {

/// Adds the tokens that the files beside a tokenizer name and its own file lacks, as transformers
/// does: those of tokenizer_config.json's added_tokens_decoder, or else of added_tokens.json, and
/// what tokenizer_config.json (without an added_tokens_decoder special_tokens_map.json, too) says
/// is the beginning of a text, its end, and so on. Of tokens that both have, their flags count.
/// Errors (user, names the file): an entry that is no token; one whose id is not the one that it
/// gets, behind the vocabulary in the order of the ids.
[[nodiscard]] Status add_tokens_beside(TokenizerParts& parts, const std::filesystem::path& folder);

}  // namespace train::storage
