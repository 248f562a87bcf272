#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/command.hpp"
#include "engine/lanes/lane_slot.hpp"

namespace train::engine {

/// Texts that are continued by a token each, and what a lane of LaneRows::texts holds of its own.
struct TextTokens {
  std::vector<std::int64_t> lengths = {};  ///< Tokens of each text, 1 or more.
  /// Last tokens of each text, as many as the model sees at most, one text after the other.
  std::vector<std::int32_t> tokens = {};
  std::int64_t vocab = 0;    ///< Ids at and above it are never chosen.
  std::int64_t context = 0;  ///< Tokens that the model sees at most.
};

/// Serves texts as lanes of LaneRows::texts, one a lane.
///
/// Threading: take() happens before the calls that read what it took, and after those that read
/// what it replaces.
class TextLanes {
 public:
  /// REQUIRES: as many tokens as the lengths say.
  void take(TextTokens texts);

  [[nodiscard]] LaneText of(std::int64_t lane) const;
  /// Writes the tokens of the lane's text, then padding. REQUIRES: a slot of at least as many.
  void read(std::int64_t lane, const LaneSlot& slot) const;

 private:
  TextTokens texts_;
  std::vector<std::size_t> begins_;  // First token of each text, then the end.
};

}  // namespace train::engine
