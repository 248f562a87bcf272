#pragma once

#include "base/result.hpp"
#include "data/prepare/prepare.hpp"

namespace train::data {

/// prepare_dataset() with the tokenizer of request.tokenizer, a directory or a file: each document
/// is encoded whole, with the tokens that the tokenizer puts around a text, and ended by its
/// end-of-text. The tokenizer's files are copied beside the tokens, to `tokenizer/`. REQUIRES: the
/// request is checked, `input_bytes` is the size of its inputs. Errors: (user) those of
/// Tokenizer::load; a tokenizer without an end-of-text; a document of more than
/// kDocumentLimitBytes; read and write errors.
Result<PrepareReport> prepare_encoded(const PrepareRequest& request, std::uint64_t input_bytes,
                                      const PrepareProgress& callback);

/// Longest document that is encoded.
inline constexpr std::uint64_t kDocumentLimitBytes = std::uint64_t{1} << 30;

}  // namespace train::data
