#include "data/chat/white_space.hpp"

#include <algorithm>
#include <array>

namespace train::data {
namespace {

constexpr std::array<std::string_view, 29> kSpaces = {
    " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",
    "\x1e",   "\x1f",   "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
    "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
    "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

/// Length in bytes of the white space that `matches`; 0: none does.
template <typename Matches>
std::size_t space_length(Matches matches) {
  const auto* const found = std::find_if(kSpaces.begin(), kSpaces.end(), matches);
  return found == kSpaces.end() ? 0 : found->size();
}

std::size_t space_before(std::string_view text) {
  return space_length([&](std::string_view each) { return text.starts_with(each); });
}

std::size_t space_behind(std::string_view text) {
  return space_length([&](std::string_view each) { return text.ends_with(each); });
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (const std::size_t length = space_before(text)) {
    text.remove_prefix(length);
  }
  while (const std::size_t length = space_behind(text)) {
    text.remove_suffix(length);
  }
  return text;
}

std::string without_white_space(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = space_before(text);
    if (length == 0) {
      result += text.front();
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

bool is_blank(std::string_view text) { return trimmed(text).empty(); }

}  // namespace train::data
