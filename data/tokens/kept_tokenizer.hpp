#pragma once

#include <filesystem>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// Files of a tokenizer that are copied beside tokens: the tokenizer, its token names, its
/// end-of-text. `tokenizer` is the argument of Tokenizer::load().
[[nodiscard]] std::vector<std::filesystem::path> tokenizer_files(
    const std::filesystem::path& tokenizer);

/// Copies them to `tokenizer/` in `data`, so that the data documents its tokens. Errors: those of
/// reading and writing.
Status keep_tokenizer(const std::filesystem::path& tokenizer, const std::filesystem::path& data);

/// Directory below `data` for the copies and the chat template.
[[nodiscard]] std::filesystem::path kept_tokenizer_folder(const std::filesystem::path& data);

/// Directory or file below `data` for Tokenizer::load(); empty if there is no copy.
[[nodiscard]] std::filesystem::path kept_tokenizer(const std::filesystem::path& data);

}  // namespace train::data
