#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace train::actors {

/// Address at which the head of one generation of ranks listens.
struct Endpoint {
  std::string host;  ///< IPv4 address.
  std::uint16_t port = 0;
  std::uint32_t generation = 0;  ///< Generation of ranks, within that start of the launchers.
};

/// `host:port`, as on a command line.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);
/// Errors (user): not in the form HOST:PORT.
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);

/// IPv4 address of a network interface; of the loopback if `interface` is empty. Errors (user): no
/// such interface with an address; names those that have one.
[[nodiscard]] Result<std::string> interface_address(const std::string& interface);

}  // namespace train::actors
