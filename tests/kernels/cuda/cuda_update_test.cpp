// CUDA twins of what surrounds a model: sums, conversions, norms, optimizers.
#include <algorithm>

#include <limits>

#include "kernels/activation/elementwise.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_update_test {
namespace {

/// Not a multiple of a warp or block, and more than one block.
constexpr std::int64_t count = 3001;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// Random, with what is not finite, both zeros and a denormal among it.
Values odd_values(unsigned seed) {
  Values values = random_values(count, seed);
  values[3] = nan;
  values[70] = infinity;
  values[700] = -infinity;
  values[1000] = 0.0F;
  values[1001] = -0.0F;
  values[1002] = 1e-41F;
  return values;
}

Values squares(unsigned seed) {
  Values values = random_values(count, seed, 0.1F);
  for (float& value : values) {
    value *= value;
  }
  return values;
}

TEST_CASE("cuda twins: elementwise", "[kernels][cuda][.gpu]") {
  compare_twins("residual_add", "in place", elementwise, bf16_rounding, [](Side& side) {
    const auto out = side.element_result(random_values(count, 1));
    const auto branch = side.elements(random_values(count, 2));
    side.kernels.residual_add(side.stream(), {.x = out,
                                              .branch = branch,
                                              .out = out,
                                              .scale = 0.3F,
                                              .count = count,
                                              .dtype = side.dtype});
  });
  compare_twins("tree_add", "into the left one", same_bits, [](Side& side) {
    float* left = side.result(odd_values(1));
    const float* right = side.put(odd_values(2));
    side.kernels.tree_add(side.stream(),
                          {.left = left, .right = right, .out = left, .count = count});
  });
  for (const bool with_factor : {false, true}) {
    const char* what = with_factor ? "by a factor of the device's" : "alone";
    compare_twins("scale", what, same_bits, [with_factor](Side& side) {
      const float* factor = side.put(Values{-0.7F});
      side.kernels.scale(side.stream(), {.x = side.put(odd_values(1)),
                                         .y = side.result(untouched_values(count)),
                                         .scale = 0.9F,
                                         .factor = with_factor ? factor : nullptr,
                                         .count = count});
    });
  }
  compare_twins("count_nonzero", "with NaN and zeros", same_bits, same_bits, [](Side& side) {
    const float* x = side.put(odd_values(1));
    std::int64_t* found = side.result(std::vector<std::int64_t>{-1});
    side.kernels.count_nonzero(side.stream(), {.x = x, .count = count, .nonzero = found});
  });
  compare_twins("mask_sign", "with NaN and zeros", same_bits, [](Side& side) {
    float* g = side.result(odd_values(1));
    const float* other = side.put(odd_values(2));
    side.kernels.mask_sign(side.stream(), {.g = g, .other = other, .count = count});
  });
  compare_twins("fill", "a part", same_bits, [](Side& side) {
    float* out = side.result(untouched_values(count));
    side.kernels.fill(side.stream(), {.out = out, .value = 2.5F, .count = count - 5});
  });
  compare_twins("copy", "a part", same_bits, [](Side& side) {
    const float* in = side.put(random_values(count, 1));
    float* out = side.result(untouched_values(count));
    side.kernels.copy(side.stream(), {.out = out, .in = in, .size_bytes = (count - 3) * 4});
  });
  compare_twins("count_nonfinite", "three of them", same_bits, same_bits, [](Side& side) {
    const auto x = side.elements(odd_values(1));
    std::int64_t* found = side.result(std::vector<std::int64_t>{-1});
    side.kernels.count_nonfinite(side.stream(),
                                 {.x = x, .count = count, .nonfinite = found, .dtype = side.dtype});
  });
}

TEST_CASE("cuda twins: bf16", "[kernels][cuda][.gpu]") {
  compare_twins("pack_bf16", "with NaN and Inf", same_bits, [](Side& side) {
    const float* in = side.put(odd_values(1));
    auto* out = side.result(std::vector<std::uint16_t>(at(count)));
    side.kernels.pack_bf16(side.stream(), {.in = in, .out = out, .count = count});
  });
  compare_twins("unpack_bf16", "all patterns", same_bits, [](Side& side) {
    std::vector<std::uint16_t> patterns(1 << 16);
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      patterns[i] = static_cast<std::uint16_t>(i);
    }
    const auto* in = side.put(patterns);
    float* out = side.result(zeros(1 << 16));
    side.kernels.unpack_bf16(side.stream(), {.in = in, .out = out, .count = 1 << 16});
  });
}

TEST_CASE("cuda twins: global norm", "[kernels][cuda][.gpu]") {
  for (const std::int64_t cols : {1, 15, 16, 100, 777}) {
    compare_twins(
        "row_square_sums", fmt::format("33 rows of {}", cols), same_bits, [&](Side& side) {
          const float* x = side.put(random_values(33 * cols, 1));
          double* sums = side.result(Exact(33, -1.0));
          side.kernels.row_square_sums(
              side.stream(), {.tensors = {{.x = x, .row_sums = sums, .rows = 33, .cols = cols}}});
        });
  }
  for (const std::int64_t terms : {0, 1, 5, 512, 513, 1537, 2050}) {
    compare_twins("tree_sum", fmt::format("{} terms, every third", terms), same_bits,
                  [&](Side& side) {
                    const double* values = side.put(exact(random_values(3 * 2050, 1)));
                    double* sum = side.result(Exact{-1.0});
                    side.kernels.tree_sum(
                        side.stream(),
                        {.sums = {{.values = values, .out = sum, .count = terms, .stride = 3}}});
                  });
  }
  for (const double squared : {4.0, 0.01, std::numeric_limits<double>::infinity()}) {
    compare_twins("clip_scale", fmt::format("squared norm {}", squared), same_bits,
                  [&](Side& side) {
                    const double* inputs = side.put(Exact{squared, 7.0, 0.3});
                    UpdateGuard* guard = side.result(std::vector<UpdateGuard>(1));
                    side.kernels.clip_scale(side.stream(), {.squared_norm = inputs,
                                                            .cross_entropy = inputs + 1,
                                                            .z_squared = inputs + 2,
                                                            .guard = guard,
                                                            .loss_scale = 0.125,
                                                            .z_scale = 1e-4,
                                                            .clip = 1.0F});
                  });
  }
}

/// A guard that scales gradients, or that lets nothing through.
std::vector<UpdateGuard> gate_of(bool nonfinite) {
  return {{.grad_scale = 0.37F, .grad_norm = 3.0F, .nonfinite = nonfinite ? 1 : 0}};
}

std::string nonfinite_name(bool nonfinite) {
  return nonfinite ? "non-finite: untouched" : "one step";
}

TEST_CASE("cuda: AdamW writes its weights as bf16 too, unless it is non-finite",
          "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const std::int64_t first : {0, 1, 4}) {
    for (const bool nonfinite : {false, true}) {
      CAPTURE(first, nonfinite);
      Side side = cuda_side();
      const auto size = static_cast<std::size_t>(first + count);
      const Buffer weights(size * sizeof(float), "weights", MemoryKind::pinned);
      const Buffer rounded(size * sizeof(std::uint16_t), "rounded", MemoryKind::pinned);
      const Buffer packed(size * sizeof(std::uint16_t), "packed", MemoryKind::pinned);
      const Values before = random_values(first + count, 1);
      std::copy(before.begin(), before.end(), weights.as<float>());
      std::fill_n(rounded.as<std::uint16_t>(), size, std::uint16_t{7});
      side.kernels.adamw_update(side.stream(),
                                {.tensors = {{.p = weights.as<float>() + first,
                                              .g = side.put(random_values(count, 2)),
                                              .m = side.put(random_values(count, 3, 0.1F)),
                                              .v = side.put(squares(4)),
                                              .rounded = rounded.as<std::uint16_t>() + first,
                                              .count = count}},
                                 .guard = side.put(gate_of(nonfinite)),
                                 .step = 7,
                                 .lr = 1e-2});
      side.kernels.pack_bf16(side.stream(), {.in = weights.as<float>() + first,
                                             .out = packed.as<std::uint16_t>() + first,
                                             .count = count});
      side.stream().synchronize();
      const auto* out = rounded.as<std::uint16_t>();
      CHECK(std::all_of(out, out + first, [](std::uint16_t bits) { return bits == 7; }));
      if (nonfinite) {
        CHECK(std::all_of(out + first, out + size, [](std::uint16_t bits) { return bits == 7; }));
      } else {
        CHECK(std::equal(out + first, out + size, packed.as<std::uint16_t>() + first));
      }
    }
  }
}

TEST_CASE("cuda twins: AdamW and AdEMAMix", "[kernels][cuda][.gpu]") {
  for (const bool nonfinite : {false, true}) {
    compare_twins("adamw_update", nonfinite_name(nonfinite), elementwise, [&](Side& side) {
      AdamwParams params{.step = 7, .lr = 1e-2, .weight_decay = 0.1, .decay_after = 0.01};
      params.tensors = {{.p = side.result(random_values(count, 1)),
                         .g = side.put(random_values(count, 2)),
                         .m = side.result(random_values(count, 3, 0.1F)),
                         .v = side.result(squares(4)),
                         .count = count}};
      params.guard = side.put(gate_of(nonfinite));
      side.kernels.adamw_update(side.stream(), params);
    });
    compare_twins("ademamix_update", nonfinite_name(nonfinite), elementwise, [&](Side& side) {
      AdemamixParams params{.step = 7, .lr = 1e-2, .alpha = 3.0, .decay = 0.01};
      params.tensors = {{.p = side.result(random_values(count, 1)),
                         .g = side.put(random_values(count, 2)),
                         .fast = side.result(random_values(count, 3, 0.1F)),
                         .slow = side.result(random_values(count, 4, 0.1F)),
                         .v = side.result(squares(5)),
                         .count = count}};
      params.guard = side.put(gate_of(nonfinite));
      side.kernels.ademamix_update(side.stream(), params);
    });
  }
}

TEST_CASE("cuda twins: DANA", "[kernels][cuda][.gpu]") {
  for (const bool star : {false, true}) {
    for (const bool sums : {false, true}) {
      const auto what = fmt::format("{}{}", star ? "star" : "plain", sums ? ", row sums" : "");
      compare_twins("dana_update", what, transcendental, [&](Side& side) {
        constexpr std::int64_t rows = 43;
        constexpr std::int64_t cols = 70;
        DanaParams params{.step = 9, .lr = 1e-2, .clip = 1.5};
        // The second moment is above some floor: the update divides by its root.
        params.tensors = {{.p = side.result(random_values(rows * cols, 1)),
                           .g = side.put(random_values(rows * cols, 2)),
                           .m = side.result(random_values(rows * cols, 3, 0.1F)),
                           .v = side.result(Values(at(rows * cols), 0.02F)),
                           .tau = star ? side.result(Values(at(rows * cols), 0.3F)) : nullptr,
                           .row_sums = sums ? side.result(std::vector<DanaRowSums>(rows)) : nullptr,
                           .rows = rows,
                           .cols = cols}};
        params.guard = side.put(gate_of(false));
        side.kernels.dana_update(side.stream(), params);
      });
    }
  }
  compare_twins("dana_update", nonfinite_name(true), same_bits, [](Side& side) {
    DanaParams params;
    params.tensors = {{.p = side.result(random_values(count, 1)),
                       .g = side.put(random_values(count, 2)),
                       .m = side.result(random_values(count, 3)),
                       .v = side.result(squares(4)),
                       .rows = 1,
                       .cols = count}};
    params.guard = side.put(gate_of(true));
    side.kernels.dana_update(side.stream(), params);
  });
}

// Where two sums lie on either side of a border between bf16 numbers, one rounding of fp32 becomes
// one of bf16: 2^16 times as much, of values below 1.
constexpr double one_of_bf16 = 65536.0;

TEST_CASE("cuda twins: Muon", "[kernels][cuda][.gpu]") {
  for (const bool nesterov : {false, true}) {
    compare_twins("muon_momentum", nesterov ? "nesterov" : "plain", one_of_bf16, [&](Side& side) {
      MuonMomentumParams params{.count = count, .nesterov = nesterov};
      params.g = side.put(random_values(count, 1));
      params.m = side.result(random_values(count, 2));
      params.x = side.result(zeros(count));
      params.guard = side.put(gate_of(false));
      side.kernels.muon_momentum(side.stream(), params);
    });
  }
  compare_twins("muon_normalise", "the norm decides", same_bits, [](Side& side) {
    float* x = side.result(random_values(count, 1));
    const double* norm = side.put(Exact{123.4});
    side.kernels.muon_normalise(
        side.stream(),
        {.x = x, .squared_norm = norm, .count = count, .least = 1e-7, .added = 1e-7});
  });
  compare_twins("muon_normalise", "the least norm decides", same_bits, [](Side& side) {
    float* x = side.result(random_values(count, 1));
    const double* norm = side.put(Exact{1e-20});
    side.kernels.muon_normalise(side.stream(),
                                {.x = x, .squared_norm = norm, .count = count, .least = 0.5});
  });
  compare_twins("blend_bf16", "in place", one_of_bf16, [](Side& side) {
    float* x = side.result(random_values(count, 1));
    const float* y = side.put(random_values(count, 2));
    side.kernels.blend_bf16(side.stream(),
                            {.x = x, .y = y, .out = x, .count = count, .a = 1.7, .b = -0.4});
  });
  for (const bool nonfinite : {false, true}) {
    compare_twins("muon_apply", nonfinite_name(nonfinite), elementwise, [&](Side& side) {
      float* p = side.result(random_values(count, 1));
      const float* x = side.put(random_values(count, 2));
      const UpdateGuard* guard = side.put(gate_of(nonfinite));
      side.kernels.muon_apply(
          side.stream(),
          {.p = p, .x = x, .guard = guard, .count = count, .decay = 0.01, .step_size = 0.02});
    });
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_update_test
