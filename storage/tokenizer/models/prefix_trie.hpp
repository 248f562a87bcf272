#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace train::storage {

/// Texts with numbers, searched byte by byte from the beginning of another text: a double array.
///
/// Threading: immutable.
class PrefixTrie {
 public:
  static constexpr std::uint32_t none = 0xffffffffU;

  /// REQUIRES: texts are sorted, not empty, and none is there twice; a zero byte ends a text.
  explicit PrefixTrie(const std::vector<std::pair<std::string_view, std::uint32_t>>& texts);
  PrefixTrie() : PrefixTrie(std::vector<std::pair<std::string_view, std::uint32_t>>()) {}

  /// A place in the trie, after the bytes that led there.
  struct Place {
    std::uint32_t at = 0;
  };

  /// Goes on with a byte; false, and `place` is of no more use, if no text does.
  [[nodiscard]] bool step(Place& place, char byte) const {
    const std::uint32_t next = units_[place.at].children + static_cast<unsigned char>(byte);
    if (next >= units_.size() || units_[next].parent != place.at) {
      return false;
    }
    place.at = next;
    return true;
  }

  /// The number of the text that ends here, or none.
  [[nodiscard]] std::uint32_t number(Place place) const { return units_[place.at].number; }

 private:
  struct Unit {
    std::uint32_t children = 0;  ///< A child lies so far on, and its byte further.
    std::uint32_t parent = none;
    std::uint32_t number = none;
  };

  std::vector<Unit> units_;
};

}  // namespace train::storage
