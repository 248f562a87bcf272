#include "storage/examples/keyword_mask.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "storage/files/untrusted_text.hpp"

namespace train::storage {

Result<KeywordMask> KeywordMask::compile(std::span<const std::string> expressions) {
  if (expressions.empty()) {
    return user_error("no keywords are given; name at least one expression");
  }
  std::vector<Regex> compiled;
  for (const std::string& expression : expressions) {
    if (expression.empty()) {
      return user_error("a keyword is empty, and would be found everywhere");
    }
    auto regex = Regex::compile(fmt::format("(?i:{})", expression));
    if (!regex) {
      return user_error(fmt::format("keyword {}: {}", shown(expression), regex.error().message));
    }
    compiled.push_back(std::move(*regex));
  }
  return KeywordMask(std::move(compiled));
}

Result<std::vector<bool>> KeywordMask::of(std::string_view text,
                                          std::span<const TokenSpan> spans) const {
  std::vector<bool> covered(text.size(), false);
  for (const Regex& regex : expressions_) {
    Regex::Matches matches(regex, text);
    while (true) {
      const auto match = matches.next();
      TRAIN_RETURN_IF_ERROR(match);
      if (!*match) {
        break;
      }
      std::fill(covered.begin() + static_cast<std::ptrdiff_t>((*match)->begin),
                covered.begin() + static_cast<std::ptrdiff_t>((*match)->end), true);
    }
  }
  std::vector<bool> mask;
  for (const TokenSpan& span : spans) {
    const auto begin = covered.begin() + static_cast<std::ptrdiff_t>(span.first);
    const auto end = covered.begin() + static_cast<std::ptrdiff_t>(span.last);
    mask.push_back(std::find(begin, end, true) != end);
  }
  return mask;
}

}  // namespace train::storage
