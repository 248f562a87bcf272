#include "configs/board_address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <charconv>

namespace train::configs {
namespace {

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

bool ascii_equal(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  });
}

/// True if a numeric address belongs to the loopback; nullopt: not numeric.
std::optional<bool> loopback(const std::string& host) {
  in_addr four = {};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) {
    constexpr unsigned kLoopbackNet = 127;
    return ntohl(four.s_addr) >> 24U == kLoopbackNet;
  }
  in6_addr six = {};
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&six) != 0;
  }
  return std::nullopt;
}

}  // namespace

std::optional<BoardAddress> parse_board_host(std::string_view text) {
  const std::string_view host = split(text).host;
  BoardAddress address{.host = std::string(ascii_equal(host, "localhost") ? "127.0.0.1" : host)};
  const std::optional<bool> own = loopback(address.host);
  if (!own) {
    return std::nullopt;
  }
  address.loopback = *own;
  return address;
}

std::optional<BoardAddress> parse_board_address(std::string_view text) {
  std::optional<BoardAddress> address = parse_board_host(text);
  if (!address) {
    return std::nullopt;
  }
  const std::string_view port = split(text).port;
  const char* const end = port.data() + port.size();
  const auto [stop, code] = std::from_chars(port.data(), end, address->port);
  return code == std::errc() && stop == end ? address : std::nullopt;
}

}  // namespace train::configs
