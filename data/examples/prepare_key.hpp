#pragma once

#include <string>

#include "base/result.hpp"
#include "data/chat/chat_template.hpp"
#include "data/examples/prepare_rows.hpp"

namespace train::data {

/// Argument of ChatTemplate::find() for a request.
[[nodiscard]] std::string template_of(const PrepareRowsRequest& request);

/// Settings of rendering for a request: with its tokenizer's special tokens.
[[nodiscard]] ChatSettings chat_settings_of(const PrepareRowsRequest& request);

/// Digest of everything that determines the rows: names and bytes of the inputs, bytes of the
/// tokenizer's files, the template, the options, the format version. Reads the inputs once. Errors:
/// read errors.
[[nodiscard]] Result<std::string> prepare_key(const PrepareRowsRequest& request);

}  // namespace train::data
