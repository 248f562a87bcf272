#include "cli/board/board_access.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "storage/files/atomic_file.hpp"

namespace train::cli {
namespace {

constexpr std::string_view kHttpPort = "80";  // Default port, which browsers omit.
constexpr std::size_t kShortestToken = 16;
constexpr std::uint64_t kLargestTokenFile = 4096;

bool is_token_character(char each) {
  return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-' || each == '_' ||
         each == '.' || each == '~';
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
  if (token.size() < kShortestToken ||
      !std::all_of(token.begin(), token.end(), is_token_character)) {
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
