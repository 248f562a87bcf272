#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace train::actors {

/// Arguments of a process that runs one rank, given by its launcher.
struct WorkerOptions {
  std::string head;                 ///< HOST:PORT of the run's head.
  std::int64_t rank = 0;            ///< 0 or more.
  std::string credentials;          ///< Directory of the credentials that the head gives its ranks.
  std::int64_t memory = -1;         ///< Descriptor of the node's snapshots, for writing; -1: none.
  std::int64_t memory_before = -1;  ///< Descriptor of those of the previous number of ranks, for
                                    ///< reading; -1: none.
  std::int64_t memory_buddy_before = -1;  ///< Descriptor of the previous node's snapshots from
                                          ///< then; -1: none.
};

/// Runs the rank in this process until the head ends it, which ends the process with the head's
/// exit code. Blocks. Errors: the head cannot be reached, before the rank has joined.
[[nodiscard]] Result<int> serve_rank(const WorkerOptions& options);

}  // namespace train::actors
