#include "data/tokenizer/models/prefix_trie.hpp"

#include <algorithm>
#include <cstddef>

namespace train::data {
namespace {

/// Texts that share the prefix leading to a unit.
struct Group {
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t depth = 0;
  std::uint32_t at = 0;
};

}  // namespace

PrefixTrie::PrefixTrie(const std::vector<std::pair<std::string_view, std::uint32_t>>& texts)
    : units_(1) {
  std::vector<Group> groups = {{0, texts.size(), 0, 0}};
  std::vector<bool> taken = {true};
  std::size_t lowest_free = 1;
  std::vector<std::pair<unsigned, std::size_t>> children;  // Byte, and the begin of its texts.
  while (!groups.empty()) {
    Group group = groups.back();
    groups.pop_back();
    if (group.first < group.last && texts[group.first].first.size() == group.depth) {
      units_[group.at].number = texts[group.first].second;
      ++group.first;
    }
    children.clear();
    for (std::size_t i = group.first; i < group.last; ++i) {
      const auto byte = static_cast<unsigned char>(texts[i].first[group.depth]);
      if (children.empty() || children.back().first != byte) {
        children.emplace_back(byte, i);
      }
    }
    if (children.empty()) {
      continue;
    }
    while (lowest_free < taken.size() && taken[lowest_free]) {
      ++lowest_free;
    }
    // First base for which all children find a free unit; not below 0 for the first child.
    std::size_t base = lowest_free > children[0].first ? lowest_free - children[0].first : 0;
    const auto fits = [&](std::size_t where) {
      return std::all_of(children.begin(), children.end(), [&](const auto& child) {
        const std::size_t unit = where + child.first;
        return unit >= taken.size() || !taken[unit];
      });
    };
    // Few tries, then the end: gaps are filled by groups with one child.
    constexpr std::size_t tries = 256;
    for (std::size_t i = 0; !fits(base); ++i) {
      base = i < tries ? base + 1 : taken.size();
    }
    units_[group.at].children = static_cast<std::uint32_t>(base);
    if (base + children.back().first >= units_.size()) {
      units_.resize(base + children.back().first + 1);
      taken.resize(units_.size(), false);
    }
    for (std::size_t i = 0; i < children.size(); ++i) {
      const auto at = static_cast<std::uint32_t>(base + children[i].first);
      taken[at] = true;
      units_[at].parent = group.at;
      const std::size_t last = i + 1 < children.size() ? children[i + 1].second : group.last;
      groups.push_back({children[i].second, last, group.depth + 1, at});
    }
  }
}

}  // namespace train::data
