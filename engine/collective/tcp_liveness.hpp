#pragma once

#include <chrono>
#include <set>

#include "base/result.hpp"

// What tells a peer that is slow from a link that was cut: the kernel of a machine answers for its
// processes, however busy they are, and over a cut link nobody answers.
namespace train::engine {

/// The descriptors of this process that are connected TCP sockets.
[[nodiscard]] std::set<int> tcp_sockets();

/// From here on the kernel asks the other end of an idle connection now and then whether it is
/// there; a connection over which nothing comes back for `limit`, asked or sent, breaks with
/// ETIMEDOUT. A descriptor that is no socket any more is left alone. REQUIRES: 4 s or more. Errors
/// (failure): the kernel refuses.
[[nodiscard]] Status find_cut(int socket, std::chrono::seconds limit);

}  // namespace train::engine
