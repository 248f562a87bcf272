#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::actors {

/// A socket that listens, does not block, and its port; `port` 0: any free one. Errors: port taken
/// or not allowed, address not of this node (user; name the keys of [parallel]).
[[nodiscard]] Result<std::pair<Descriptor, std::uint16_t>> listen_on(const std::string& host,
                                                                     std::uint16_t port);

}  // namespace train::actors
