#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace train::configs {

/// Where a board listens.
struct BoardAddress {
  std::string host;  ///< A numeric address.
  std::uint16_t port = 0;
  bool loopback = false;
};

/// "127.0.0.1:8080", "[::1]:0", "localhost:0", "0.0.0.0:80"; empty: of another form, or no port.
/// Whether this machine has the address, and whether the port is free, shows when it is listened
/// to.
[[nodiscard]] std::optional<BoardAddress> parse_board_address(std::string_view text);

/// The same of a text whose port may be missing; it is not read.
[[nodiscard]] std::optional<BoardAddress> parse_board_host(std::string_view text);

/// What it must be, behind the name of a key.
inline constexpr std::string_view kBoardAddressRule =
    "must be an address of this machine and a port, for example \"127.0.0.1:8080\" or "
    "\"127.0.0.1:0\" (any free port)";

}  // namespace train::configs
