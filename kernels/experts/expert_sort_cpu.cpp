#include <algorithm>
#include <numeric>

#include "kernels/cpu_support.hpp"
#include "kernels/experts/experts.hpp"

namespace train::kernels::cpu {

// On one thread: it passes the choices twice, which takes less than a thousandth of the products.
void expert_sort(const ExpertSortParams& p, int) {
  const std::int64_t count = p.rows * p.slots;
  std::fill_n(p.offsets, p.experts + 1, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    TRAIN_CHECK(p.chosen[i] >= 0 && p.chosen[i] < p.experts,
                "expert_sort: row {} has chosen expert {} of {}", i / p.slots, p.chosen[i],
                p.experts);
    ++p.offsets[p.chosen[i] + 1];
  }
  std::partial_sum(p.offsets, p.offsets + p.experts + 1, p.offsets);
  static thread_local Scratch scratch;
  auto* next = scratch.get<std::int32_t>(p.experts);
  std::copy_n(p.offsets, p.experts, next);
  for (std::int64_t row = 0; row < p.rows; ++row) {
    for (std::int64_t i = row * p.slots; i < (row + 1) * p.slots; ++i) {
      const std::int32_t place = next[p.chosen[i]]++;
      p.row_of[place] = static_cast<std::int32_t>(row);
      p.slot_of[place] = static_cast<std::int32_t>(i);
      p.places[i] = place;
    }
  }
}

}  // namespace train::kernels::cpu
