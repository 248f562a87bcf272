#pragma once

#include <map>
#include <string>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// The tokenizer in a GGUF file as the files of a published model, by name: tokenizer.json of a
/// byte-level one ("gpt2", of the splittings "gpt-2", "smollm", "llama-bpe" and "qwen2"),
/// tokenizer.model of a SentencePiece one ("llama"); tokenizer_config.json, which has the chat
/// templates where there are several, else chat_template.jinja has the one; generation_config.json
/// where turns end otherwise than texts. Nothing of others.
/// Errors (user): lists that are missing or do not fit each other.
[[nodiscard]] Result<std::map<std::string, std::string>> gguf_tokenizer_files(
    const storage::GgufFile& file);

/// A line for people about a file whose tokenizer is none of those.
[[nodiscard]] std::string unknown_gguf_tokenizer(const storage::GgufFile& file);

}  // namespace train::checkpoint
