#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::data {

/// Key of a GGUF file's chat template; named ones have it and ".name".
inline constexpr const char* kGgufTemplateKey = "tokenizer.chat_template";

/// Converts the tokenizer in a GGUF file to files of a published model, by name: tokenizer.json for
/// a byte-level one ("gpt2", with the pre-tokenizers "gpt-2", "smollm", "llama-bpe" and "qwen2"),
/// tokenizer.model for a SentencePiece one ("llama"); tokenizer_config.json, which has the chat
/// templates if there are several, else chat_template.jinja has the single one;
/// generation_config.json if turns end with other tokens than texts. Empty for other tokenizers.
/// Errors (user): lists are missing or inconsistent.
[[nodiscard]] Result<std::map<std::string, std::string>> gguf_tokenizer_files(
    const storage::GgufFile& file);

/// Texts of a GGUF file by name.
using GgufTexts = std::map<std::string, std::string, std::less<>>;

/// Chat templates of a GGUF file ("default" and named ones), and its special tokens (bos, eos, unk,
/// pad), by name. Both may be empty.
[[nodiscard]] GgufTexts gguf_template_sources(const storage::GgufFile& file);
[[nodiscard]] GgufTexts gguf_special_tokens(const storage::GgufFile& file);

/// Line for the user about a file with any other tokenizer.
[[nodiscard]] std::string unknown_gguf_tokenizer(const storage::GgufFile& file);

}  // namespace train::data
