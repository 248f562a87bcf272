#include "data/tokenizer/text/text_finder.hpp"

#include "base/check.hpp"

namespace train::data {
namespace {

std::size_t byte_pair(char first, char second) {
  return static_cast<std::size_t>(static_cast<unsigned char>(first)) * 256 +
         static_cast<unsigned char>(second);
}

}  // namespace

std::uint32_t TextFinder::child_of(std::uint32_t node, char letter) const {
  std::uint32_t child = nodes_[node].child;
  while (child != kNone && nodes_[child].letter != letter) {
    child = nodes_[child].sibling;
  }
  return child;
}

void TextFinder::add(std::string_view text, std::uint32_t value) {
  TRAIN_CHECK(!text.empty());
  std::uint32_t node = 0;
  for (const char letter : text) {
    std::uint32_t child = child_of(node, letter);
    if (child == kNone) {
      child = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[node].child, .letter = letter});
      nodes_[node].child = child;
    }
    node = child;
  }
  nodes_[node].value = nodes_[node].value == kNone ? value : nodes_[node].value;
  const auto first = static_cast<unsigned char>(text[0]);
  if (!singles_.test(first)) {
    singles_.set(first);
    firsts_.push_back(text[0]);
  }
  if (text.size() > 1) {
    pairs_.set(byte_pair(text[0], text[1]));
  } else {
    for (unsigned second = 0; second < 256; ++second) {
      pairs_.set(byte_pair(text[0], static_cast<char>(static_cast<unsigned char>(second))));
    }
  }
}

std::size_t TextFinder::next_candidate(std::string_view text, std::size_t from) const {
  if (firsts_.size() == 1) {
    const std::size_t found = text.find(firsts_[0], from);
    return found == std::string_view::npos ? text.size() : found;
  }
  for (; from + 1 < text.size(); ++from) {
    if (pairs_.test(byte_pair(text[from], text[from + 1]))) {
      return from;
    }
  }
  return from < text.size() && singles_.test(static_cast<unsigned char>(text[from])) ? from
                                                                                     : text.size();
}

std::optional<TextFinder::Found> TextFinder::find_at(std::string_view text,
                                                     std::size_t from) const {
  std::optional<Found> longest;
  std::uint32_t node = 0;
  for (std::size_t at = from; at < text.size(); ++at) {
    node = child_of(node, text[at]);
    if (node == kNone) {
      break;
    }
    if (nodes_[node].value != kNone) {
      longest = Found{from, at + 1, nodes_[node].value};
    }
  }
  return longest;
}

std::optional<TextFinder::Found> TextFinder::find(std::string_view text, std::size_t from) const {
  for (from = next_candidate(text, from); from < text.size();
       from = next_candidate(text, from + 1)) {
    if (const auto longest = find_at(text, from)) {
      return longest;
    }
  }
  return std::nullopt;
}

}  // namespace train::data
