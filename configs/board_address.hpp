#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace train::configs {

/// Listening address of a board.
struct BoardAddress {
  std::string host;  ///< A numeric address.
  std::uint16_t port = 0;
  bool loopback = false;
};

/// Parses "127.0.0.1:8080", "[::1]:0", "localhost:0", "0.0.0.0:80"; nullopt: malformed, or no port.
/// Whether this machine has the address and the port is free is only known when listening.
[[nodiscard]] std::optional<BoardAddress> parse_board_address(std::string_view text);

/// Parses an address whose port may be missing and is ignored.
[[nodiscard]] std::optional<BoardAddress> parse_board_host(std::string_view text);

/// Form of the value, for messages, after a key's name.
inline constexpr std::string_view kBoardAddressRule =
    "must be an address of this machine and a port, for example \"127.0.0.1:8080\" or "
    "\"127.0.0.1:0\" (any free port)";

}  // namespace train::configs
