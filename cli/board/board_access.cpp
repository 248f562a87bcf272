#include "cli/board/board_access.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cctype>
#include <charconv>

#include "storage/files/atomic_file.hpp"

namespace train::cli {
namespace {

namespace asio = boost::asio;

constexpr std::string_view kCookie = "actortrain_token=";
constexpr std::size_t kShortestToken = 16;
constexpr std::uint64_t kLargestTokenFile = 4096;

std::optional<asio::ip::address> numeric(std::string_view host) {
  boost::system::error_code wrong;
  auto address = asio::ip::make_address(host, wrong);
  return wrong ? std::nullopt : std::optional(std::move(address));
}

struct HostAndPort {
  std::string_view host, port;
};

/// "[::1]:80", "host:80", "host", "[::1]".
HostAndPort split(std::string_view text) {
  const std::size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  const bool bracketed = bracket != std::string_view::npos;
  const std::size_t colon = text.find(':', bracketed ? bracket : 0);
  const std::string_view host = text.substr(0, colon);
  return {.host = bracketed ? host.substr(1, bracket - 1) : host,
          .port = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1)};
}

bool is_token_character(char each) {
  return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-' || each == '_' ||
         each == '.' || each == '~';
}

bool ascii_equal(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  });
}

}  // namespace

Result<BoardAddress> parse_board_address(std::string_view text, std::string_view name) {
  const HostAndPort parts = split(text);
  const auto address = numeric(ascii_equal(parts.host, "localhost") ? "127.0.0.1" : parts.host);
  std::uint16_t port = 0;
  const auto [stop, code] =
      std::from_chars(parts.port.data(), parts.port.data() + parts.port.size(), port);
  if (!address || code != std::errc() || stop != parts.port.data() + parts.port.size()) {
    return user_error(fmt::format(
        "{} must be an address of this machine and a port, for example \"127.0.0.1:8080\" or "
        "\"127.0.0.1:0\" (any free port), not \"{}\"",
        name, text));
  }
  return BoardAddress{
      .host = address->to_string(), .port = port, .loopback = address->is_loopback()};
}

Result<std::string> read_board_token(const std::filesystem::path& file) {
  auto text = storage::read_file(file, kLargestTokenFile);
  TRAIN_RETURN_IF_ERROR(text);
  struct stat there = {};
  if (::stat(file.c_str(), &there) != 0) {
    return storage::os_error(storage::Access::read, file, errno);
  }
  if ((there.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return user_error(fmt::format("{}: others than its owner may read or change it; chmod 600 {}",
                                  file.string(), file.string()));
  }
  std::string token = text->substr(0, text->find('\n'));
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
  // As long for the first wrong character as for the last: time shall tell nothing.
  unsigned different = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    different |= static_cast<unsigned char>(text[at]) ^ static_cast<unsigned char>((*token_)[at]);
  }
  return different == 0;
}

BoardAccess::Verdict BoardAccess::judge(const BoardCaller& caller) const {
  if (!token_) {
    const std::string_view host = split(caller.host).host;
    return numeric(host) || ascii_equal(host, "localhost") ? Verdict::granted : Verdict::refused;
  }
  constexpr std::string_view kBearer = "Bearer ";
  if (caller.authorization.starts_with(kBearer) &&
      is_token(caller.authorization.substr(kBearer.size()))) {
    return Verdict::granted;
  }
  if (is_token(caller.query_token)) {
    return Verdict::granted_by_query;
  }
  for (std::size_t at = caller.cookie.find(kCookie); at != std::string_view::npos;
       at = caller.cookie.find(kCookie, at + 1)) {
    const std::string_view rest = caller.cookie.substr(at + kCookie.size());
    if (is_token(rest.substr(0, rest.find(';')))) {
      return Verdict::granted;
    }
  }
  return Verdict::refused;
}

std::string BoardAccess::cookie() const {
  return fmt::format("{}{}; Path=/; HttpOnly; SameSite=Strict", kCookie, *token_);
}

}  // namespace train::cli
