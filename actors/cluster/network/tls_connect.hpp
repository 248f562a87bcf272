#pragma once

#include <chrono>
#include <utility>

#include "actors/cluster/network/endpoint.hpp"
#include "actors/cluster/network/tls.hpp"
#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::actors {

using TlsConnection = std::pair<Descriptor, TlsSession>;

/// What an Error of the world does not say: whether it is worth another try.
struct TlsRefusal {
  bool final = false;  ///< The peer's certificate is not of this run.
};

/// A connected socket whose peer has proved that it holds a head's certificate of this run. Blocks
/// until then, `deadline`, or `stop` (a descriptor; -1: none) is readable. Errors (failure): why
/// not, a half sentence.
[[nodiscard]] Result<TlsConnection> connect_tls(const Endpoint& endpoint, const TlsContext& context,
                                                std::chrono::steady_clock::time_point deadline,
                                                TlsRefusal& refusal, int stop = -1);

enum class Waited : std::uint8_t { ready, stopped, late };

/// Waits until `socket` is ready for `events` (of poll), `stop` is readable, or `deadline`.
Waited wait_ready(int socket, short events, std::chrono::steady_clock::time_point deadline,
                  int stop = -1);

}  // namespace train::actors
