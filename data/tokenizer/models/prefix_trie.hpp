#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace train::data {

/// Numbered texts, matched byte by byte against the beginning of another text: a double array.
///
/// Threading: immutable.
class PrefixTrie {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  /// REQUIRES: texts are sorted, non-empty and unique; a zero byte ends a text.
  explicit PrefixTrie(const std::vector<std::pair<std::string_view, std::uint32_t>>& texts);
  PrefixTrie() : PrefixTrie(std::vector<std::pair<std::string_view, std::uint32_t>>()) {}

  /// Position in the trie after some bytes.
  struct Place {
    std::uint32_t at = 0;
  };

  /// Advances by a byte; false if no text continues so, and `place` is then invalid.
  [[nodiscard]] bool step(Place& place, char byte) const {
    const std::uint32_t next = units_[place.at].children + static_cast<unsigned char>(byte);
    if (next >= units_.size() || units_[next].parent != place.at) {
      return false;
    }
    place.at = next;
    return true;
  }

  /// Number of the text that ends here, or kNone.
  [[nodiscard]] std::uint32_t number(Place place) const { return units_[place.at].number; }

 private:
  struct Unit {
    std::uint32_t children = 0;  ///< Offset of the children; a child's byte is added.
    std::uint32_t parent = kNone;
    std::uint32_t number = kNone;
  };

  std::vector<Unit> units_;
};

}  // namespace train::data
