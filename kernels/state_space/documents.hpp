#pragma once

#include <cstdint>

namespace train::kernels {

/// Rows [sequences, seq_len] of a state-space layer, and their documents, at whose begin its state
/// is zero.
struct DocumentRows {
  /// [sequences, seq_len]: of rows in their documents, 0, 1, ...; nullptr: a sequence is one.
  const std::int32_t* positions = nullptr;
  std::int64_t sequences = 0, seq_len = 0;

  [[nodiscard]] constexpr std::int64_t count() const { return sequences * seq_len; }
};

/// Decoding state of texts: what a kernel leaves of a text for the next token's row.
struct TextStates {
  void* data = nullptr;                 ///< [texts, a shape of the kernel]; nullptr: none.
  const std::int32_t* texts = nullptr;  ///< [rows]: the text of each row.
  /// false: each document begins a text, whose state is left. true: each sequence is one row, the
  /// next token of its text, at DocumentRows::positions there; a row at 0 finds no state.
  bool extend = false;
};

}  // namespace train::kernels
