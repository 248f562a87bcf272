#pragma once

#include <caf/fwd.hpp>
#include <caf/io/scribe.hpp>

#include "actors/cluster/network/tls.hpp"
#include "base/descriptor.hpp"

namespace train::actors {

/// A connection whose handshake is over, as the actor framework's broker reads and writes it.
/// The framework's own TLS layer shakes hands inside the broker: there a peer that connects and
/// says nothing keeps the network thread spinning and is never dropped. Here the framework sees a
/// connection only after its peer has proved who it is.
/// REQUIRES: `socket` is connected and does not block; the system has the io module.
[[nodiscard]] caf::io::scribe_ptr make_secure_scribe(caf::actor_system& system, Descriptor socket,
                                                     TlsSession session);

}  // namespace train::actors
