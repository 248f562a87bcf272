#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/index/step_journal.hpp"

namespace train::cli {

/// What of the journal does not fit itself: records that cannot be read, steps missing in between,
/// numbers of tokens. A line for each. Pure.
[[nodiscard]] std::vector<std::string> audit_journal(const checkpoint::StepJournal& journal,
                                                     std::int64_t tokens_per_step);

/// What a whole checkpoint says of itself, and what was computed from its bytes.
struct CheckpointFacts {
  std::int64_t step = 0;
  std::string name;  ///< Of its directory.
  std::int64_t tokens = 0;
  std::string weights_digest;          ///< Of the manifest; may be empty.
  std::vector<std::string> tensors;    ///< Sorted names.
  std::vector<std::uint64_t> digests;  ///< engine::tensor_digests() of its bytes.
};

/// What of a checkpoint does not fit the journal of its run, or itself. A line for each. Pure.
[[nodiscard]] std::vector<std::string> audit_checkpoint(const CheckpointFacts& facts,
                                                        const checkpoint::StepJournal& journal);

}  // namespace train::cli
