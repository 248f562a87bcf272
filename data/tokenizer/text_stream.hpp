#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.hpp"

namespace train::data {

/// Streaming decoder for tokens that follow others: the pieces add up to what decoding all tokens
/// gives beyond decoding the earlier ones (TK-4). Special tokens are left out. Text that later
/// tokens may change is held back.
///
/// Not thread-safe. Borrows the tokenizer. Memory and time per token: proportional to a line of
/// text, or to the byte tokens of consecutive characters.
class TextStream {
 public:
  /// `before`: tokens whose text is already shown.
  TextStream(const Tokenizer& tokenizer, std::span<const std::uint32_t> before);

  /// Text added by `token`, as far as it is final.
  [[nodiscard]] std::string add(std::uint32_t token);
  /// Returns the remaining text at the end.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::size_t settled_tokens() const;
  void forget_old_tokens();

  const Tokenizer* tokenizer_;
  std::vector<std::uint32_t> tokens_;  ///< The most recent tokens.
  std::size_t shown_ = 0;              ///< Bytes of their text already shown.
};

}  // namespace train::data
