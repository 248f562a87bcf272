#include "engine/lanes/text_lanes.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::engine {

void TextLanes::take(TextTokens texts) {
  texts_ = std::move(texts);
  begins_.assign(1, 0);
  for (const std::int64_t length : texts_.lengths) {
    TRAIN_CHECK(length > 0, "a text of {} tokens", length);
    begins_.push_back(begins_.back() + static_cast<std::size_t>(std::min(length, texts_.context)));
  }
  TRAIN_CHECK(begins_.back() == texts_.tokens.size(), "{} tokens of {}", texts_.tokens.size(),
              begins_.back());
}

LaneText TextLanes::of(std::int64_t lane) const {
  return {.tokens = texts_.lengths.at(static_cast<std::size_t>(lane)), .vocab = texts_.vocab};
}

void TextLanes::read(std::int64_t lane, const LaneSlot& slot) const {
  const std::size_t begin = begins_.at(static_cast<std::size_t>(lane));
  const std::size_t end = begins_.at(static_cast<std::size_t>(lane) + 1);
  TRAIN_CHECK(end - begin <= slot.tokens.size(), "{} tokens in {}", end - begin,
              slot.tokens.size());
  std::ranges::fill(slot.tokens, 0);
  std::ranges::fill(slot.targets, -1);
  std::ranges::fill(slot.positions, 0);
  std::ranges::fill(slot.weights, 0.0F);
  std::copy(texts_.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
            texts_.tokens.begin() + static_cast<std::ptrdiff_t>(end), slot.tokens.begin());
}

}  // namespace train::engine
