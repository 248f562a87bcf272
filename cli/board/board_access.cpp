#include "cli/board/board_access.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/text/one_line.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
namespace {

constexpr std::string_view kHttpPort = "80";  // Default port, which browsers omit.
constexpr std::size_t kShortestToken = 16;
constexpr std::uint64_t kLargestTokenFile = 4096;

bool is_letter_or_digit(char each) { return std::isalnum(static_cast<unsigned char>(each)) != 0; }

/// True if all of `text`, at least a character, is letters, digits and characters of `more`.
bool consists_of(std::string_view text, std::string_view more) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [more](char each) {
    return is_letter_or_digit(each) || more.find(each) != std::string_view::npos;
  });
}

/// "vscode-webview:", "https://hub.example.org", "https://*.example.org", "http://localhost:*".
bool is_origin(std::string_view word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string_view::npos || !consists_of(word.substr(0, colon), "+-.")) {
    return false;
  }
  std::string_view rest = word.substr(colon + 1);
  if (rest.empty()) {
    return true;
  }
  if (!rest.starts_with("//")) {
    return false;
  }
  rest.remove_prefix(2);
  if (rest.starts_with("*.")) {
    rest.remove_prefix(2);
  }
  const std::size_t end = rest.find(':');
  const std::string_view port = end == std::string_view::npos ? "*" : rest.substr(end + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string_view::npos;
  return consists_of(rest.substr(0, end), "-.") && (digits || port == "*");
}

/// "actortrain_token_8080=", with the port that the browser uses; with port forwarding it differs
/// from the board's own.
std::string cookie_name(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  std::string_view port = colon == std::string_view::npos ? "" : host.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      std::all_of(port.begin(), port.end(),
                                  [](unsigned char each) { return std::isdigit(each) != 0; });
  return fmt::format("actortrain_token_{}=", digits ? port : kHttpPort);
}

}  // namespace

Result<configs::BoardAddress> parse_board_address(std::string_view text, std::string_view name) {
  auto address = configs::parse_board_address(text);
  if (!address) {
    return user_error(fmt::format("{} {}, not \"{}\"", name, configs::kBoardAddressRule, text));
  }
  return *std::move(address);
}

Result<std::string> parse_frame_ancestors(std::string_view text, std::string_view name) {
  std::string origins;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) {
      continue;
    }
    if (!is_origin(word)) {
      return user_error(fmt::format(
          "{} must be origins of pages, with blanks between them, for example \"http://localhost:* "
          "https://hub.example.org:8888\", not \"{}\"",
          name, one_line(word)));
    }
    origins.append(origins.empty() ? "" : " ").append(word);
  }
  return origins;
}

Result<std::string> read_board_token(const std::filesystem::path& file) {
  auto text = TRAIN_TRY(storage::read_file(file, kLargestTokenFile));
  struct stat there = {};
  if (::stat(file.c_str(), &there) != 0) {
    return storage::os_error(storage::Access::read, file, errno);
  }
  if ((there.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return user_error(fmt::format("{}: others than its owner may read or change it; chmod 600 {}",
                                  file.string(), file.string()));
  }
  std::string token = text.substr(0, text.find('\n'));
  if (token.size() < kShortestToken || !consists_of(token, "-_.~")) {
    return user_error(fmt::format(
        "{}: its first line must be a token of {} or more letters, digits and -_.~; for example "
        "of: openssl rand -hex 16",
        file.string(), kShortestToken));
  }
  return token;
}

bool BoardAccess::is_token(std::string_view text) const {
  if (text.size() != token_->size()) {
    return false;
  }
  // Constant-time comparison: timing must not reveal the first wrong character.
  unsigned different = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    different |= static_cast<unsigned char>(text[at]) ^ static_cast<unsigned char>((*token_)[at]);
  }
  return different == 0;
}

BoardAccess::Verdict BoardAccess::judge(const BoardCaller& caller) const {
  if (!token_) {
    return configs::parse_board_host(caller.host) ? Verdict::granted : Verdict::refused;
  }
  constexpr std::string_view kBearer = "Bearer ";
  if (caller.authorization.starts_with(kBearer) &&
      is_token(caller.authorization.substr(kBearer.size()))) {
    return Verdict::granted;
  }
  if (is_token(caller.query_token)) {
    return Verdict::granted_by_query;
  }
  const std::string name = cookie_name(caller.host);
  for (std::size_t at = caller.cookie.find(name); at != std::string_view::npos;
       at = caller.cookie.find(name, at + 1)) {
    const std::string_view rest = caller.cookie.substr(at + name.size());
    if (is_token(rest.substr(0, rest.find(';')))) {
      return Verdict::granted;
    }
  }
  return Verdict::refused;
}

std::string BoardAccess::cookie(std::string_view host) const {
  return fmt::format("{}{}; Path=/; HttpOnly; SameSite=Strict", cookie_name(host), *token_);
}

}  // namespace train::cli
