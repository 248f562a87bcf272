#pragma once

#include "base/result.hpp"
#include "storage/tokens/prepare.hpp"

namespace train::storage {

/// prepare_dataset() with the tokenizer in request.tokenizer, a directory or a file: each document
/// is encoded whole, with what the tokenizer adds to every text, and ended by its end-of-text. The
/// tokenizer's files are kept beside the tokens, in `tokenizer/`. REQUIRES: the request is checked,
/// `input_bytes` is the size of its inputs.
/// Errors: (user) those of Tokenizer::load; a tokenizer without an end-of-text; a document of more
/// than document_limit_bytes; those of reading and writing.
Result<PrepareReport> prepare_encoded(const PrepareRequest& request, std::uint64_t input_bytes,
                                      const PrepareProgress& callback);

/// The longest document that is encoded.
inline constexpr std::uint64_t document_limit_bytes = std::uint64_t{1} << 30;

}  // namespace train::storage
