#include "engine/model/workspace.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace train::engine::activation_arena_test {
namespace {

struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] bool meets(const Range& other) const {
    return begin < other.end && other.begin < end;
  }
};

Range range_of(std::size_t offset, const UnitBytes& what) {
  return {offset, offset + what.size_bytes};
}

void check_apart(const std::vector<Range>& needed, const ArenaPlan& plan) {
  for (std::size_t i = 0; i < needed.size(); ++i) {
    CHECK(needed[i].end <= plan.size_bytes);
    for (std::size_t j = 0; j < i; ++j) {
      CHECK_FALSE(needed[i].meets(needed[j]));
    }
  }
}

/// No two of what is needed at the time of `unit`'s backward pass share a byte.
void check_backward(std::size_t unit, const std::vector<UnitBytes>& kept,
                    const std::vector<UnitBytes>& gradients, const ScratchBytes& scratch,
                    const ArenaPlan& plan) {
  std::vector<Range> needed = {{plan.block_scratch, plan.block_scratch + scratch.block_bytes}};
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].unit <= unit) {
      needed.push_back(range_of(plan.kept[i], kept[i]));
    }
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].unit >= unit) {
      needed.push_back(range_of(plan.gradients[i], gradients[i]));
    }
  }
  check_apart(needed, plan);
}

/// Nor of what is needed in the forward pass: of the blocks with their scratch, and of the head
/// with its own and its gradient.
void check_forward(const std::vector<UnitBytes>& kept, const std::vector<UnitBytes>& gradients,
                   const ScratchBytes& scratch, const ArenaPlan& plan) {
  std::vector<Range> slots;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    slots.push_back(range_of(plan.kept[i], kept[i]));
  }
  slots.push_back({plan.block_scratch, plan.block_scratch + scratch.block_bytes});
  check_apart(slots, plan);
  slots.back() = {plan.head_scratch, plan.head_scratch + scratch.head_bytes};
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].unit == scratch.head_unit) {
      slots.push_back(range_of(plan.gradients[i], gradients[i]));
    }
  }
  check_apart(slots, plan);
}

}  // namespace

TEST_CASE("activation arena: what a backward pass needs never overlaps", "[engine][model]") {
  const int seed = GENERATE(range(1, 51));
  CAPTURE(seed);
  std::mt19937 random_bits(static_cast<unsigned>(seed));
  const auto up_to = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(0, most)(random_bits);
  };
  const std::size_t units = 1 + up_to(6);
  std::vector<UnitBytes> kept, gradients;
  std::size_t all_bytes = 0;
  for (std::size_t unit = 0; unit < units; ++unit) {
    for (std::size_t slots = up_to(3); slots > 0; --slots) {
      kept.push_back({unit, up_to(1000)});
      all_bytes += whole_lines(kept.back().size_bytes);
    }
    if (unit + 1 == units || up_to(3) > 0) {  // A group of several units is named by its highest.
      gradients.push_back({unit, up_to(1500)});
      all_bytes += whole_lines(gradients.back().size_bytes);
    }
  }
  std::shuffle(gradients.begin(), gradients.end(), random_bits);
  const ScratchBytes scratch{.head_unit = units - 1,
                             .head_bytes = whole_lines(up_to(3) * up_to(1000)),
                             .block_bytes = whole_lines(up_to(1) * up_to(2000))};
  const ArenaPlan plan = plan_arena(kept, gradients, scratch);
  REQUIRE(plan.kept.size() == kept.size());
  REQUIRE(plan.gradients.size() == gradients.size());
  CHECK(plan.size_bytes <= all_bytes + std::max(scratch.head_bytes, scratch.block_bytes));
  for (std::size_t unit = units; unit-- > 0;) {
    check_backward(unit, kept, gradients, scratch, plan);
  }
  check_forward(kept, gradients, scratch, plan);
}

TEST_CASE("activation arena: gradients take the place of activations that are done with",
          "[engine][model]") {
  // Head, two blocks, embedding: the blocks' gradients are as large as their activations.
  const ArenaPlan plan =
      plan_arena({{0, 64}, {1, 640}, {2, 640}}, {{3, 128}, {2, 640}, {1, 640}, {0, 64}});
  CHECK(plan.size_bytes == 64 + 640 + 640 + 128 + 640);
  CHECK(plan.gradients == std::vector<std::size_t>{1984, 1344, 704, 640});
  // The head's scratch lies where the upper block's gradient and the blocks' scratch will.
  const ArenaPlan with_scratch =
      plan_arena({{0, 64}, {1, 640}, {2, 640}}, {{3, 128}, {2, 640}, {1, 640}, {0, 64}},
                 {.head_unit = 3, .head_bytes = 832, .block_bytes = 192});
  CHECK(with_scratch.size_bytes == plan.size_bytes + 192);
  CHECK(with_scratch.gradients == std::vector<std::size_t>{2176, 1344, 704, 640});
  CHECK(with_scratch.block_scratch == 1984);
  CHECK(with_scratch.head_scratch == 1344);
  CHECK(plan_arena({{0, 64}, {1, 65}}, {}).size_bytes == 192);
  CHECK(plan_arena({}, {{1, 64}, {0, 64}}).size_bytes == 128);
}

}  // namespace train::engine::activation_arena_test
