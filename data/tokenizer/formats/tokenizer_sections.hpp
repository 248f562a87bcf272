#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"

namespace train::data {

// Sections of tokenizer.json; null: the section is missing. Errors (user): an unsupported type or
// option, by name.

[[nodiscard]] Result<Normalizer> read_normalizer(const nlohmann::json& section);
[[nodiscard]] Result<PreTokenizer> read_pre_tokenizer(const nlohmann::json& section);
[[nodiscard]] Result<TokenDecoder> read_decoder(const nlohmann::json& section);
[[nodiscard]] Result<SpecialFrame> read_post_processor(const nlohmann::json& section);
[[nodiscard]] Result<std::vector<AddedToken>> read_added_tokens(const nlohmann::json& section);
/// True if the model is Unigram, false if BPE. Errors: another type.
[[nodiscard]] Result<bool> is_unigram(const nlohmann::json& section);
/// Options of the model; `unknown_score` depends on the pieces and is set later.
[[nodiscard]] Result<UnigramOptions> read_unigram_options(const nlohmann::json& section,
                                                          std::size_t pieces_count);
/// Options of the model; `byte_level` depends on the pre-tokenizer and is set later.
[[nodiscard]] Result<BpeOptions> read_bpe_options(const nlohmann::json& section);

}  // namespace train::data
