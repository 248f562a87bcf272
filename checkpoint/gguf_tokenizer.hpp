#pragma once

#include <map>
#include <string>

#include "base/result.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {

/// The tokenizer in a GGUF file as the files of a published model: tokenizer.json,
/// tokenizer_config.json and, if there is one, chat_template.jinja; by name. Byte-level tokenizers
/// ("gpt2") alone, of the splittings "gpt-2", "smollm", "llama-bpe" and "qwen2"; nothing of others.
/// Errors (user): lists that are missing or do not fit each other.
[[nodiscard]] Result<std::map<std::string, std::string>> gguf_tokenizer_files(
    const storage::GgufFile& file);

}  // namespace train::checkpoint
