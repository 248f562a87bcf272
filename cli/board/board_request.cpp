#include "cli/board/board_request.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace train::cli {
namespace {

int hex_digit(char each) {
  if (each >= '0' && each <= '9') {
    return each - '0';
  }
  const char lower = static_cast<char>(each | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      plain += text[at] == '+' ? ' ' : text[at];
      continue;
    }
    const int high = at + 2 < text.size() ? hex_digit(text[at + 1]) : -1;
    const int low = at + 2 < text.size() ? hex_digit(text[at + 2]) : -1;
    if (high < 0 || low < 0) {
      return std::nullopt;
    }
    plain += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return plain;
}

}  // namespace

std::string_view BoardTarget::text(std::string_view key) const {
  const auto found = query.find(key);
  return found == query.end() ? std::string_view() : std::string_view(found->second);
}

std::optional<std::int64_t> BoardTarget::integer(std::string_view key) const {
  const std::string_view digits = text(key);
  std::int64_t value = 0;
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return code == std::errc() && stop == digits.data() + digits.size() && value >= 0
             ? std::optional(value)
             : std::nullopt;
}

std::optional<BoardTarget> parse_board_target(std::string_view target) {
  if (!target.starts_with('/')) {
    return std::nullopt;
  }
  const std::size_t mark = target.find('?');
  BoardTarget parsed{.path = std::string(target.substr(0, mark)), .query = {}};
  std::string_view rest = mark == std::string_view::npos ? "" : target.substr(mark + 1);
  while (!rest.empty()) {
    const std::size_t end = rest.find('&');
    const std::string_view pair = rest.substr(0, end);
    const std::size_t equals = pair.find('=');
    auto key = decoded(pair.substr(0, equals));
    auto value = decoded(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    if (!key || !value) {
      return std::nullopt;
    }
    parsed.query.insert_or_assign(*std::move(key), *std::move(value));
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  return parsed;
}

bool is_board_path(std::string_view path) {
  constexpr std::array<std::string_view, 6> kOfRuns = {
      "/runs.json", "/metrics", "/status.json", "/series.json", "/experts.json", "/events"};
  return find_board_file(path) != nullptr ||
         std::find(kOfRuns.begin(), kOfRuns.end(), path) != kOfRuns.end();
}

}  // namespace train::cli
