#pragma once

#include <array>
#include <filesystem>
#include <system_error>

namespace train::data {

/// Tokenizer files in a model's directory, its chat template included; copied wherever the
/// tokenizer is kept.
inline constexpr std::array kTokenizerFileNames = {"tokenizer.json",
                                                   "tokenizer_config.json",
                                                   "tokenizer.model",
                                                   "tekken.json",
                                                   "vocab.json",
                                                   "merges.txt",
                                                   "added_tokens.json",
                                                   "chat_template.jinja",
                                                   "chat_template.json",
                                                   "special_tokens_map.json",
                                                   "generation_config.json"};

/// True if a directory has a file from which a tokenizer can be read.
[[nodiscard]] inline bool holds_tokenizer(const std::filesystem::path& directory) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json"}) {
    if (std::filesystem::exists(directory / name, ignored)) {
      return true;
    }
  }
  return false;
}

}  // namespace train::data
