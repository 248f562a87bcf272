#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// Compiled normalisation table of a SentencePiece model, which maps text prefixes to texts: a
/// double array of the library Darts-clone, then zero-terminated texts.
///
/// Threading: immutable. Invariant: no search reads out of bounds, for any bytes.
class CharacterMap {
 public:
  CharacterMap() = default;
  /// Errors (user): inconsistent sizes.
  static Result<CharacterMap> parse(std::string_view bytes);

  struct Found {
    std::size_t length = 0;    ///< Length of the prefix.
    std::string_view content;  ///< Replacement text.
  };
  /// Longest prefix of `text` in the table.
  [[nodiscard]] std::optional<Found> find(std::string_view text) const;
  /// Shortest prefix of `text` in the table.
  [[nodiscard]] std::optional<Found> find_shortest(std::string_view text) const;

  [[nodiscard]] bool empty() const { return units_.empty(); }

 private:
  [[nodiscard]] std::optional<Found> find(std::string_view text, bool shortest) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace train::data
