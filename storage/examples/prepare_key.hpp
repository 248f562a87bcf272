#pragma once

#include <string>

#include "base/result.hpp"
#include "storage/chat/chat_template.hpp"
#include "storage/examples/prepare_rows.hpp"

namespace train::storage {

/// What ChatTemplate::find() takes of a request.
[[nodiscard]] std::string template_of(const PrepareRowsRequest& request);

/// How it is rendered: with the special tokens of the request's tokenizer.
[[nodiscard]] ChatSettings chat_settings_of(const PrepareRowsRequest& request);

/// A digest of all that rows are made from: the bytes and names of the inputs, the bytes of
/// the tokenizer's files, the template, the options, the version of the format. Reads the inputs
/// once. Errors: those of reading.
[[nodiscard]] Result<std::string> prepare_key(const PrepareRowsRequest& request);

}  // namespace train::storage
