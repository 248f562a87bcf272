#pragma once

#include <memory>

#include "actors/cluster/network/secure_stream.hpp"
#include "base/process/descriptor.hpp"

namespace train::actors {

/// Relays bytes between an authenticated connection and one end of a local socket pair; the
/// returned other end is a plain socket, whose owner need not handle certificates. At most 16 KiB
/// each way are buffered; a slow side slows down the other. When the connection is lost the local
/// socket is closed; when its owner closes it, bytes already written are still sent, while the loop
/// lives and the peer reads.
[[nodiscard]] Result<Descriptor> relay_bytes(const EventLoop& loop,
                                             std::unique_ptr<SecureStream> stream);

}  // namespace train::actors
