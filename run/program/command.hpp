#pragma once

#include <cstdint>
#include <vector>

#include "engine/command.hpp"

namespace train::run {

/// Command of the run to every rank. `sequence` counts all commands of a generation from 0; `step`
/// is the number of optimizer steps finished before the command.
struct Command {
  std::uint64_t sequence = 0;
  engine::CommandKind kind = engine::CommandKind::stop;
  std::int32_t pass = -1;      ///< Of a pass its PassPlan::index; else -1.
  std::int64_t step = 0;       ///< Of a search the index of the step to run again.
  std::int64_t replaces = -1;  ///< Of a snapshot: that waits and is given up for it, if it is good.
  bool write_now = false;      ///< A snapshot is written at once; else when WriteSnapshot says so.
  // Texts to continue (engine::TextTokens).
  std::vector<std::int64_t> text_lengths = {};
  std::vector<std::int32_t> text_tokens = {};
  std::int64_t text_vocab = 0;
};

}  // namespace train::run
