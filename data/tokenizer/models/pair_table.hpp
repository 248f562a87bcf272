#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace train::data {

/// Merge of two adjacent tokens: its rank (lowest first) and the resulting token. Built once, then
/// read by several threads.
class PairTable {
 public:
  static constexpr std::uint32_t kNoRank = 0xffffffffU;

  struct Merge {
    std::uint32_t rank = kNoRank;
    std::uint32_t id = 0;
  };

  /// Reserves room for `pairs`. REQUIRES: called before the first add().
  void reserve(std::size_t pairs) {
    slots_.assign(std::bit_ceil(pairs * 2 + 2), Slot{});
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(slots_.size()));
  }

  /// Replaces the merge of an existing pair. REQUIRES: no more pairs than reserved.
  void add(std::uint32_t left, std::uint32_t right, Merge merge) {
    Slot& slot = slots_[find_slot(left, right)];
    slot = {left, right, merge};
  }

  /// Rank kNoRank if the pair does not merge. REQUIRES: reserve() was called.
  [[nodiscard]] Merge find(std::uint32_t left, std::uint32_t right) const {
    return slots_[find_slot(left, right)].merge;
  }

 private:
  struct Slot {
    std::uint32_t left = 0;
    std::uint32_t right = 0;
    Merge merge;
  };

  [[nodiscard]] std::size_t find_slot(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = (static_cast<std::uint64_t>(left) << 32U) | right;
    std::size_t at = ((key ^ (key >> 29U)) * 0x9e3779b97f4a7c15U) >> shift_;
    while (slots_[at].merge.rank != kNoRank &&
           (slots_[at].left != left || slots_[at].right != right)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  std::vector<Slot> slots_;
  unsigned shift_ = 0;
};

}  // namespace train::data
