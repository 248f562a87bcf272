#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "storage/tokenizer/tokenizer.hpp"

namespace train::storage {

/// The text of tokens that come one after the other behind others: what decoding all of them gives
/// behind what decoding those before gives, whatever pieces it is shown in (TK-4). Special tokens
/// are left out. What later tokens may change is held back.
///
/// Not thread-safe. Borrows the tokenizer. Memory and time of a token: of the order of a line of
/// text, or of the bytes that one character after the other is written in.
class TextStream {
 public:
  /// `before`: tokens whose text is shown already.
  TextStream(const Tokenizer& tokenizer, std::span<const std::uint32_t> before);

  /// What `token` adds to the text, as far as nothing can change it any more.
  [[nodiscard]] std::string add(std::uint32_t token);
  /// What is left at the end.
  [[nodiscard]] std::string finish();

 private:
  [[nodiscard]] std::size_t settled_tokens() const;
  void forget_old_tokens();

  const Tokenizer* tokenizer_;
  std::vector<std::uint32_t> tokens_;  ///< The last ones.
  std::size_t shown_ = 0;              ///< Bytes of their text.
};

}  // namespace train::storage
