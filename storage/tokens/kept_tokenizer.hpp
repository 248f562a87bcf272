#pragma once

#include <filesystem>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// The files that are a tokenizer, name tokens of it, and say how its texts end: those that are
/// kept beside tokens. `tokenizer` is what Tokenizer::load() takes.
[[nodiscard]] std::vector<std::filesystem::path> tokenizer_files(
    const std::filesystem::path& tokenizer);

/// Copies them to `tokenizer/` in `data`, so that the data says what its tokens mean. Errors: those
/// of reading and writing.
Status keep_tokenizer(const std::filesystem::path& tokenizer, const std::filesystem::path& data);

/// The directory below `data` that they are copied to, and a chat template with them.
[[nodiscard]] std::filesystem::path kept_tokenizer_folder(const std::filesystem::path& data);

/// The directory or file below `data` that Tokenizer::load() takes; empty if none was kept.
[[nodiscard]] std::filesystem::path kept_tokenizer(const std::filesystem::path& data);

}  // namespace train::storage
