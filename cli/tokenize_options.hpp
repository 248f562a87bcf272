#pragma once

#include <string>

namespace train::cli {

/// actortrain tokenize, and detokenize
struct TokenizeOptions {
  std::string tokenizer;  ///< "bytes", or a directory or file.
  std::string file;       ///< Empty: standard input.
  bool lines = false;     ///< One text, and its ids, per line.
  bool jsonl = false;     ///< {"text"} and {"ids"} per line.
  bool special = false;   ///< Add and show special tokens.
  bool spans = false;     ///< Add "spans" to "ids": the bytes of each id.
  bool pieces = false;    ///< Add "pieces" to "prompt": the text added by each token.
  bool rendered = false;  ///< The text comes from a chat template.
};

}  // namespace train::cli
