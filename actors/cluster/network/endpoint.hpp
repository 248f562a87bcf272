#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.hpp"

namespace train::actors {

/// Where the head of this start listens.
struct Endpoint {
  std::string host;  ///< IPv4 address.
  std::uint16_t port = 0;
  std::string start = {};  ///< Names the start of the run that wrote it; may be empty.
};

/// `host:port`, as on a command line.
[[nodiscard]] std::string to_string(const Endpoint& endpoint);
/// Errors (user): not of the form HOST:PORT.
[[nodiscard]] Result<Endpoint> parse_endpoint(const std::string& text);

/// Waits until `file` names an endpoint of a start that is `wanted` and returns it; looks every 50
/// ms. Blocks. Errors: none came in time, or before `give_up` (failure).
[[nodiscard]] Result<Endpoint> wait_for_endpoint(
    const std::filesystem::path& file, const std::function<bool(const std::string&)>& wanted,
    std::chrono::milliseconds timeout, const std::function<bool()>& give_up = {});

/// The IPv4 address of a network interface; of loopback if `interface` is empty.
/// Errors (user): there is none of that name with an address; names those that have one.
[[nodiscard]] Result<std::string> interface_address(const std::string& interface);

}  // namespace train::actors
