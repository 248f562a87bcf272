#pragma once

#include <string>

namespace train::cli {

/// actortrain tokenize, and detokenize
struct TokenizeOptions {
  std::string tokenizer;  ///< A directory or a file.
  std::string file;       ///< Empty: standard input.
  bool lines = false;     ///< A text and its ids a line.
  bool jsonl = false;     ///< {"text"} and {"ids"} a line.
  bool special = false;   ///< With special tokens: added, and shown.
  bool spans = false;     ///< "spans" beside "ids": the bytes that each stands for.
  bool pieces = false;    ///< "pieces" behind "prompt": what each token adds to the text.
  bool rendered = false;  ///< The text is a chat template's.
};

}  // namespace train::cli
