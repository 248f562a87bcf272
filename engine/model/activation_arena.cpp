#include "engine/model/activation_arena.hpp"

#include <algorithm>
#include <numeric>

#include "base/check.hpp"

namespace train::engine {

std::size_t whole_lines(std::size_t size_bytes) { return (size_bytes + 63) / 64 * 64; }

ArenaPlan plan_arena(const std::vector<UnitBytes>& kept, const std::vector<UnitBytes>& gradients) {
  ArenaPlan plan;
  std::size_t kept_bytes = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    TRAIN_CHECK(i == 0 || kept[i - 1].unit <= kept[i].unit, "slots of unit {} come after {}",
                kept[i].unit, kept[i - 1].unit);
    plan.kept.push_back(kept_bytes);
    kept_bytes += whole_lines(kept[i].size_bytes);
  }
  const auto kept_up_to = [&](std::size_t unit) {
    const auto above = std::find_if(kept.begin(), kept.end(),
                                    [&](const UnitBytes& slot) { return slot.unit > unit; });
    return above == kept.end() ? kept_bytes
                               : plan.kept[static_cast<std::size_t>(above - kept.begin())];
  };
  std::vector<std::size_t> falling(gradients.size());
  std::iota(falling.begin(), falling.end(), std::size_t{0});
  std::sort(falling.begin(), falling.end(),
            [&](std::size_t a, std::size_t b) { return gradients[a].unit > gradients[b].unit; });
  plan.size_bytes = kept_bytes;
  std::vector<std::size_t> from_end(gradients.size());
  std::size_t written = 0;
  for (const std::size_t index : falling) {
    written += whole_lines(gradients[index].size_bytes);
    from_end[index] = written;
    plan.size_bytes = std::max(plan.size_bytes, kept_up_to(gradients[index].unit) + written);
  }
  for (const std::size_t distance : from_end) {
    plan.gradients.push_back(plan.size_bytes - distance);
  }
  return plan;
}

}  // namespace train::engine
