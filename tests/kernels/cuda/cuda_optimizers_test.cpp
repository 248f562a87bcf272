// CUDA twins of optimizers and of what is done to gradients, of every count and first element that
// decide how many elements a thread moves at once.
#include <limits>

#include "kernels/activation/elementwise.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_optimizers_test {
namespace {

/// An array that a kernel goes through: `count` elements from one that may not be aligned, and some
/// after them that stay.
struct Extent {
  std::int64_t count, first;
  [[nodiscard]] std::int64_t size() const { return first + count + 3; }
  [[nodiscard]] std::string name() const { return fmt::format("{} from {}", count, first); }

  [[nodiscard]] float* changed(Side& side, unsigned seed) const {
    return side.result(random_values(size(), seed)) + first;
  }
  [[nodiscard]] const float* read(Side& side, unsigned seed) const {
    return side.put(random_values(size(), seed)) + first;
  }
  /// Not below some floor: updates divide by its root.
  [[nodiscard]] float* positive(Side& side, unsigned seed) const {
    Values values = random_values(size(), seed);
    for (float& value : values) {
      value = value * value + 0.02F;
    }
    return side.result(values) + first;
  }
};

void each_extent(const std::function<void(const Extent&)>& with) {
  for (const std::int64_t count : {0, 1, 3, 4, 7, 31, 1003}) {
    for (const std::int64_t first : {0, 1}) {
      with({count, first});
    }
  }
}

const UpdateGuard* open_gate(Side& side) {
  return side.put(std::vector<UpdateGuard>{{.grad_scale = 0.37F, .grad_norm = 3.0F}});
}

TEST_CASE("cuda twins: several elements at once, AdEMAMix and DANA", "[kernels][cuda][.gpu]") {
  each_extent([](const Extent& extent) {
    compare_twins("ademamix_update", extent.name(), elementwise, [&](Side& side) {
      AdemamixParams params{.step = 7, .lr = 1e-2, .alpha = 3.0, .decay = 0.01};
      params.tensors = {{.p = extent.changed(side, 1),
                         .g = extent.read(side, 2),
                         .fast = extent.changed(side, 3),
                         .slow = extent.changed(side, 4),
                         .v = extent.positive(side, 5),
                         .count = extent.count}};
      params.guard = open_gate(side);
      side.kernels.ademamix_update(side.stream(), params);
    });
    for (const bool star : {false, true}) {
      for (const bool sums : {false, true}) {
        const auto what = extent.name() + (star ? ", star" : "") + (sums ? ", row sums" : "");
        compare_twins("dana_update", what, transcendental, [&](Side& side) {
          const std::int64_t cols = std::max<std::int64_t>(1, extent.count);
          DanaParams params{.step = 9, .lr = 1e-2, .clip = 1.5};
          params.tensors = {{.p = extent.changed(side, 1),
                             .g = extent.read(side, 2),
                             .m = extent.changed(side, 3),
                             .v = extent.positive(side, 4),
                             .tau = star ? extent.positive(side, 5) : nullptr,
                             .row_sums = sums ? side.result(std::vector<DanaRowSums>(1)) : nullptr,
                             .rows = extent.count == 0 ? 0 : 1,
                             .cols = cols}};
          params.guard = open_gate(side);
          side.kernels.dana_update(side.stream(), params);
        });
      }
    }
  });
}

TEST_CASE("cuda twins: several elements at once, Muon", "[kernels][cuda][.gpu]") {
  // Two values on either side of a border between bf16 numbers.
  constexpr double one_of_bf16 = 65536.0;
  each_extent([](const Extent& extent) {
    compare_twins("muon_momentum", extent.name(), one_of_bf16, [&](Side& side) {
      side.kernels.muon_momentum(side.stream(), {.g = extent.read(side, 1),
                                                 .m = extent.changed(side, 2),
                                                 .x = extent.changed(side, 3),
                                                 .guard = open_gate(side),
                                                 .count = extent.count});
    });
    compare_twins("muon_normalise", extent.name(), same_bits, [&](Side& side) {
      side.kernels.muon_normalise(side.stream(), {.x = extent.changed(side, 1),
                                                  .squared_norm = side.put(Exact{123.4}),
                                                  .count = extent.count,
                                                  .least = 1e-7,
                                                  .added = 1e-7});
    });
    compare_twins("blend_bf16", extent.name(), one_of_bf16, [&](Side& side) {
      side.kernels.blend_bf16(side.stream(), {.x = extent.read(side, 1),
                                              .y = extent.read(side, 2),
                                              .out = extent.changed(side, 3),
                                              .count = extent.count,
                                              .a = 1.7,
                                              .b = -0.4});
    });
    compare_twins("muon_apply", extent.name(), elementwise, [&](Side& side) {
      side.kernels.muon_apply(side.stream(), {.p = extent.changed(side, 1),
                                              .x = extent.read(side, 2),
                                              .guard = open_gate(side),
                                              .count = extent.count,
                                              .decay = 0.01,
                                              .step_size = 0.02});
    });
  });
}

TEST_CASE("cuda twins: several elements at once, gradients", "[kernels][cuda][.gpu]") {
  each_extent([](const Extent& extent) {
    compare_twins("scale", extent.name(), same_bits, [&](Side& side) {
      side.kernels.scale(side.stream(), {.x = extent.read(side, 2),
                                         .y = extent.changed(side, 1),
                                         .scale = 0.9F,
                                         .count = extent.count});
    });
    compare_twins("count_nonzero", extent.name(), same_bits, same_bits, [&](Side& side) {
      Values values(at(extent.size()), 1.0F);
      for (std::int64_t i = 0; i < extent.count; i += 3) {
        values[at(extent.first + i)] = i % 2 == 0 ? 0.0F : -0.0F;
      }
      std::int64_t* found = side.result(std::vector<std::int64_t>{-1});
      side.kernels.count_nonzero(
          side.stream(),
          {.x = side.put(values) + extent.first, .count = extent.count, .nonzero = found});
    });
    compare_twins("mask_sign", extent.name(), same_bits, [&](Side& side) {
      side.kernels.mask_sign(
          side.stream(),
          {.g = extent.changed(side, 1), .other = extent.read(side, 2), .count = extent.count});
    });
    compare_twins("fill", extent.name(), same_bits, [&](Side& side) {
      side.kernels.fill(side.stream(),
                        {.out = extent.changed(side, 1), .value = 2.5F, .count = extent.count});
    });
    compare_twins("count_nonfinite", extent.name(), same_bits, same_bits, [&](Side& side) {
      Values values(at(extent.size()), std::numeric_limits<float>::infinity());
      for (std::int64_t i = 0; i < extent.count; i += 3) {
        values[at(extent.first + i)] = 1.0F;
      }
      std::int64_t* found = side.result(std::vector<std::int64_t>{-1});
      side.kernels.count_nonfinite(side.stream(), {.x = side.elements(values) + extent.first,
                                                   .count = extent.count,
                                                   .nonfinite = found,
                                                   .dtype = side.dtype});
    });
  });
}

TEST_CASE("cuda twins: rows of squares of every length", "[kernels][cuda][.gpu][P1]") {
  for (const std::int64_t cols : {255, 256, 257, 768, 4111}) {
    for (const std::int64_t first : {0, 1}) {
      compare_twins("row_square_sums", fmt::format("3 rows of {} from {}", cols, first), same_bits,
                    [&](Side& side) {
                      const float* x = side.put(random_values(first + 3 * cols, 1)) + first;
                      double* sums = side.result(Exact(3, -1.0));
                      side.kernels.row_square_sums(
                          side.stream(),
                          {.tensors = {{.x = x, .row_sums = sums, .rows = 3, .cols = cols}}});
                    });
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_optimizers_test
