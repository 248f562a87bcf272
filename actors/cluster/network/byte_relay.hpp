#pragma once

#include <memory>

#include "actors/cluster/network/secure_stream.hpp"
#include "base/descriptor.hpp"

namespace train::actors {

/// Carries bytes between an authenticated connection and one end of a pair of local sockets, whose
/// other end (which is returned) belongs to somebody who knows nothing of certificates. At most 16
/// KiB each way are under way here; who is slow slows the other down. When the connection is lost
/// the local socket is closed; when its owner closes it, what he wrote is still sent, while the
/// loop lives and the peer takes it.
[[nodiscard]] Result<Descriptor> relay_bytes(const EventLoop& loop,
                                             std::unique_ptr<SecureStream> stream);

}  // namespace train::actors
