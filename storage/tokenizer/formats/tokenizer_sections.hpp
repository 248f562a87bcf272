#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/tokenizer_parts.hpp"

namespace train::storage {

// The sections of a tokenizer.json; null stands for a section that is not there. Errors (user): a
// type or an option that is not supported, by its name.

[[nodiscard]] Result<Normalizer> read_normalizer(const nlohmann::json& section);
[[nodiscard]] Result<PreTokenizer> read_pre_tokenizer(const nlohmann::json& section);
[[nodiscard]] Result<TokenDecoder> read_decoder(const nlohmann::json& section);
[[nodiscard]] Result<SpecialFrame> read_post_processor(const nlohmann::json& section);
[[nodiscard]] Result<std::vector<AddedToken>> read_added_tokens(const nlohmann::json& section);
/// Whether the model is Unigram; else it is BPE. Errors: another type.
[[nodiscard]] Result<bool> is_unigram(const nlohmann::json& section);
/// Of the model; `unknown_score` is for the pieces to say.
[[nodiscard]] Result<UnigramOptions> read_unigram_options(const nlohmann::json& section,
                                                          std::size_t pieces_count);
/// Of the model; `byte_level` is for the pre-tokenizer to say.
[[nodiscard]] Result<BpeOptions> read_bpe_options(const nlohmann::json& section);

}  // namespace train::storage
