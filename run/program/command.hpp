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
  std::int32_t pass = -1;      ///< PassPlan::index of a pass; -1: the command is no pass.
  std::int64_t step = 0;       ///< Index of the step that a search for non-finite values repeats.
  std::int64_t replaces = -1;  ///< Waiting snapshot that this one, if it is finite, replaces.
  bool write_now = false;      ///< A snapshot is written at once; else when WriteSnapshot says so.
  // Texts to continue (engine::TextTokens).
  std::vector<std::int64_t> text_lengths = {};
  std::vector<std::int32_t> text_tokens = {};
  std::int64_t text_vocab = 0;
};

}  // namespace train::run
