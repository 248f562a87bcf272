#include "data/examples/keyword_mask.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "storage/files/untrusted_text.hpp"

namespace train::data {

Result<KeywordMask> KeywordMask::compile(std::span<const std::string> expressions) {
  if (expressions.empty()) {
    return user_error("no keywords are given; name at least one expression");
  }
  std::vector<Regex> compiled;
  for (const std::string& expression : expressions) {
    if (expression.empty()) {
      return user_error("a keyword is empty and would match everywhere");
    }
    auto regex = Regex::compile(fmt::format("(?i:{})", expression));
    if (!regex) {
      return user_error(
          fmt::format("keyword {}: {}", storage::shown(expression), regex.error().message));
    }
    compiled.push_back(std::move(*regex));
  }
  return KeywordMask(std::move(compiled));
}

Result<KeywordMask> KeywordMask::read(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> expressions;
  for (std::string line; std::getline(in, line);) {
    if (line.ends_with('\r')) {
      line.pop_back();
    }
    if (!line.empty() && line.front() != '#') {
      expressions.push_back(line);
    }
  }
  if (!in.is_open() || in.bad()) {
    return user_error(fmt::format("{}: cannot be read; give a file of expressions, one on a line",
                                  file.string()));
  }
  auto mask = compile(expressions);
  if (!mask) {
    return user_error(fmt::format("{}: {}", file.string(), mask.error().message));
  }
  return mask;
}

Result<std::vector<bool>> KeywordMask::of(std::string_view text,
                                          std::span<const storage::TokenSpan> spans) const {
  std::vector<bool> covered(text.size(), false);
  for (const Regex& regex : expressions_) {
    Regex::Matches matches(regex, text);
    while (true) {
      const auto match = TRAIN_TRY(matches.next());
      if (!match) {
        break;
      }
      std::fill(covered.begin() + static_cast<std::ptrdiff_t>(match->begin),
                covered.begin() + static_cast<std::ptrdiff_t>(match->end), true);
    }
  }
  std::vector<bool> mask;
  for (const storage::TokenSpan& span : spans) {
    const auto begin = covered.begin() + static_cast<std::ptrdiff_t>(span.first);
    const auto end = covered.begin() + static_cast<std::ptrdiff_t>(span.last);
    mask.push_back(std::find(begin, end, true) != end);
  }
  return mask;
}

}  // namespace train::data
