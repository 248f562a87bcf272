#pragma once

#include <map>
#include <string>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::data {

/// Converts the tokenizer in a GGUF file to files of a published model, by name: tokenizer.json for
/// a byte-level one ("gpt2", with the pre-tokenizers "gpt-2", "smollm", "llama-bpe" and "qwen2"),
/// tokenizer.model for a SentencePiece one ("llama"); tokenizer_config.json, which has the chat
/// templates if there are several, else chat_template.jinja has the single one;
/// generation_config.json if turns end with other tokens than texts. Empty for other tokenizers.
/// Errors (user): lists are missing or inconsistent.
[[nodiscard]] Result<std::map<std::string, std::string>> gguf_tokenizer_files(
    const storage::GgufFile& file);

/// Line for the user about a file with any other tokenizer.
[[nodiscard]] std::string unknown_gguf_tokenizer(const storage::GgufFile& file);

}  // namespace train::data
