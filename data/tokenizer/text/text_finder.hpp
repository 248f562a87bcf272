#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace train::data {

/// Finds the leftmost of several texts in a text, the longest of those at one place.
///
/// Threading: immutable after the last add().
class TextFinder {
 public:
  struct Found {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::uint32_t value = 0;
  };

  /// The first of equal texts stays. REQUIRES: not empty.
  void add(std::string_view text, std::uint32_t value);
  [[nodiscard]] std::optional<Found> find(std::string_view text, std::size_t from) const;
  /// Longest text that begins at `at`.
  [[nodiscard]] std::optional<Found> find_at(std::string_view text, std::size_t at) const;
  [[nodiscard]] bool empty() const { return nodes_.size() <= 1; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffU;
  struct Node {
    std::uint32_t child = kNone;
    std::uint32_t sibling = kNone;
    std::uint32_t value = kNone;
    char letter = 0;
  };

  [[nodiscard]] std::uint32_t child_of(std::uint32_t node, char letter) const;
  [[nodiscard]] std::size_t next_candidate(std::string_view text, std::size_t from) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::bitset<65536> pairs_;  ///< Two-byte beginnings of the texts.
  std::bitset<256> singles_;  ///< First bytes of one-byte texts.
  std::string firsts_;        ///< Bytes of singles_, as a string.
};

}  // namespace train::data
