#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::storage {

/// The compiled table of a SentencePiece model that gives texts for beginnings of a text: its
/// normalisation. A double array of the library Darts-clone, then the texts, each ended by a zero.
///
/// Threading: immutable. Invariant: no search reads outside of it, whatever the bytes were.
class CharacterMap {
 public:
  CharacterMap() = default;
  /// Errors (user): sizes that do not fit each other.
  static Result<CharacterMap> parse(std::string_view bytes);

  struct Found {
    std::size_t length = 0;    ///< Of the beginning.
    std::string_view content;  ///< What takes its place.
  };
  /// The longest beginning of `text` that is in the table.
  [[nodiscard]] std::optional<Found> find(std::string_view text) const;
  /// The shortest one.
  [[nodiscard]] std::optional<Found> find_shortest(std::string_view text) const;

  [[nodiscard]] bool empty() const { return units_.empty(); }

 private:
  [[nodiscard]] std::optional<Found> find(std::string_view text, bool shortest) const;

  std::vector<std::uint32_t> units_;
  std::string texts_;
};

}  // namespace train::storage
