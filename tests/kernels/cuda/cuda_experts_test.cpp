// CUDA twins of the kernels between a router and its experts: the sort and the products of fp32
// have the CPU's bits, and a row's result does not depend on the others.
#include <algorithm>

#include "tests/kernels/cuda_fixture.hpp"
#include "tests/kernels/experts_call.hpp"

namespace train::kernels::testing::cuda_experts_test {
namespace {

TEST_CASE("cuda twins: places of experts", "[kernels][cuda][.gpu][P1]") {
  std::vector<ExpertSizes> cases = kExpertSizes;
  // More places than a block sorts; two passes of the sort; no rows.
  cases.insert(cases.end(), {{700, 64, 8}, {300, 600, 3}, {9, 511, 4}, {9, 512, 4}, {0, 5, 2}});
  for (const ExpertSizes& sizes : cases) {
    compare_twins("expert_sort", sizes.name(), same_bits, [&](Side& side) {
      side.kernels.expert_sort(side.stream(),
                               {.chosen = side.put(drawn_choices(sizes, 93)),
                                .offsets = side.result(Numbers(at(sizes.experts + 1), -7)),
                                .row_of = side.result(Numbers(at(sizes.places()), -7)),
                                .slot_of = side.result(Numbers(at(sizes.places()), -7)),
                                .places = side.result(Numbers(at(sizes.places()), -7)),
                                .rows = sizes.rows,
                                .experts = sizes.experts,
                                .slots = sizes.slots});
    });
  }
}

/// Whole vectors of both types, of fp32 alone, and neither; `first`: element that rows are moved
/// by.
struct RowsCase {
  std::int64_t cols, first;
  [[nodiscard]] std::string name() const {
    return fmt::format("{} columns{}", cols, first == 0 ? "" : " moved");
  }
  [[nodiscard]] Values values(std::int64_t rows, unsigned seed) const {
    return random_values(rows * cols + first, seed);
  }
};

TEST_CASE("cuda twins: rows of slots", "[kernels][cuda][.gpu]") {
  constexpr ExpertSizes sizes{.rows = 13, .experts = 7, .slots = 3};
  const Sorted order = sorted(drawn_choices(sizes, 94), sizes);
  for (const RowsCase& rows : {RowsCase{1, 0}, {33, 0}, {64, 0}, {60, 0}, {64, 1}, {1032, 0}}) {
    const std::int64_t first = rows.first;
    compare_twins("gather_rows", rows.name(), same_bits, same_bits, [&](Side& side) {
      side.kernels.gather_rows(side.stream(),
                               {.x = side.elements(rows.values(sizes.rows, 95)) + first,
                                .index = side.put(order.row_of),
                                .y = side.element_result(rows.values(sizes.places(), 96)) + first,
                                .count = sizes.places(),
                                .cols = rows.cols,
                                .dtype = side.dtype});
    });
    for (const int kind : {0, 1, 2, 3}) {
      compare_twins(
          "combine_rows", fmt::format("{}, {}", rows.name(), kind), same_bits, bf16_rounding,
          [&](Side& side) {
            side.kernels.combine_rows(
                side.stream(),
                {.parts = side.elements(rows.values(sizes.places(), 97)) + first,
                 .places = side.put(order.places),
                 .weights = kind % 2 == 0 ? nullptr : side.put(random_values(sizes.places(), 98)),
                 .y = side.element_result(rows.values(sizes.rows, 99)) + first,
                 .rows = sizes.rows,
                 .slots = sizes.slots,
                 .cols = rows.cols,
                 .accumulate = kind >= 2,
                 .dtype = side.dtype});
          });
    }
    compare_twins("slot_weights_backward", rows.name(), sum_of(rows.cols),
                  bf16_rounding + sum_of(rows.cols), [&](Side& side) {
                    side.kernels.slot_weights_backward(
                        side.stream(),
                        {.dh = side.element_result(rows.values(sizes.places(), 100)) + first,
                         .h = side.element_result(rows.values(sizes.places(), 101)) + first,
                         .slot_of = side.put(order.slot_of),
                         .weights = side.put(random_values(sizes.places(), 102)),
                         .dweights = side.result(untouched_values(sizes.places())),
                         .count = sizes.places(),
                         .cols = rows.cols,
                         .dtype = side.dtype});
                  });
  }
}

/// Products of experts whose places are `offsets`, of matrices n x k.
struct ProductCase {
  std::string name;
  Numbers offsets;
  std::int64_t n = 0, k = 0;
  std::int64_t more = 0;  ///< Elements between rows, besides.
  bool accumulate = false;
  bool wide = false;  ///< C is fp32 where operands are bf16.

  [[nodiscard]] std::int64_t experts() const { return std::ssize(offsets) - 1; }
  [[nodiscard]] std::int64_t stride() const { return n * (k + more) + more; }
};

void multiply(Side& side, const ProductCase& product, ExpertProduct which) {
  const bool gradient = which == ExpertProduct::weight;
  const bool output = which == ExpertProduct::output;
  ExpertMatmulParams p{.product = which,
                       .experts = product.experts(),
                       .places = product.offsets.back() + product.more,
                       .n = product.n,
                       .k = product.k,
                       .lda = (output ? product.k : product.n) + product.more,
                       .ldb = product.k + product.more,
                       .ldc = (output ? product.n : product.k) + product.more,
                       .stride = product.stride(),
                       .accumulate = product.accumulate,
                       .dtype = side.dtype};
  const std::int64_t places = product.offsets.back();
  const std::int64_t weights = product.experts() * product.stride();
  const Values c = random_values(gradient ? weights : places * p.ldc, 105);
  p.a = side.elements(random_values(places * p.lda, 103));
  p.b = side.elements(random_values(gradient ? places * p.ldb : weights, 104));
  p.offsets = side.put(product.offsets);
  if (gradient || product.wide) {
    p.c = side.result(c);
  } else {
    p.c = side.element_result(c);
    p.output_dtype = side.dtype;
  }
  side.kernels.expert_matmul(side.stream(), p);
}

/// Offsets of `experts` experts with up to `most` places, some with none.
Numbers drawn_offsets(std::int64_t experts, int most) {
  std::mt19937 generator(106);
  Numbers offsets = {0};
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto drawn = static_cast<int>(generator() % static_cast<unsigned>(2 * most));
    offsets.push_back(offsets.back() + std::max(0, drawn - most + 1));
  }
  return offsets;
}

std::vector<ProductCase> product_cases() {
  const Numbers few = {0, 1, 1, 10, 50};
  return {
      {.name = "one", .offsets = {0, 1}, .n = 1, .k = 1},
      {.name = "not aligned", .offsets = few, .n = 5, .k = 7},
      {.name = "two blocks of terms", .offsets = few, .n = 48, .k = 392, .accumulate = true},
      {.name = "tiles", .offsets = {0, 130, 130, 131, 300}, .n = 136, .k = 200, .wide = true},
      {.name = "tiles not aligned", .offsets = {0, 0, 129, 257}, .n = 131, .k = 66, .more = 3},
      {.name = "whole tiles", .offsets = {0, 128, 256}, .n = 128, .k = 128, .accumulate = true},
      {.name = "rows apart", .offsets = few, .n = 24, .k = 40, .more = 8, .accumulate = true},
      {.name = "neither first nor last", .offsets = {9, 9, 140, 150}, .n = 16, .k = 72},
      {.name = "no places", .offsets = {0, 0, 0}, .n = 16, .k = 24},
      {.name = "no places, added", .offsets = {0, 0}, .n = 16, .k = 24, .accumulate = true},
      {.name = "many experts", .offsets = drawn_offsets(70, 9), .n = 8, .k = 8},
      {.name = "more experts than a warp squared",
       .offsets = drawn_offsets(1100, 2),
       .n = 8,
       .k = 8},
  };
}

TEST_CASE("cuda twins: products of experts", "[kernels][cuda][.gpu][P1]") {
  for (const ProductCase& product : product_cases()) {
    for (const ExpertProduct which :
         {ExpertProduct::output, ExpertProduct::input, ExpertProduct::weight}) {
      std::int64_t terms = which == ExpertProduct::output ? product.k : product.n;
      if (which == ExpertProduct::weight) {
        terms = product.offsets.back();
      }
      compare_twins("expert_matmul", fmt::format("{}, {}", product.name, static_cast<int>(which)),
                    same_bits, bf16_rounding + sum_of(terms),
                    [&](Side& side) { multiply(side, product, which); });
    }
  }
}

TEST_CASE("cuda twins: biases of experts", "[kernels][cuda][.gpu][P1]") {
  std::vector<Numbers> cases = {{0, 1},    {0, 64, 64, 129},       {9, 9, 140, 150},
                                {0, 0, 0}, {0, 63, 127, 191, 192}, drawn_offsets(300, 40)};
  for (const Numbers& offsets : cases) {
    const std::int64_t experts = std::ssize(offsets) - 1;
    const std::int64_t places = offsets.back() + 3;
    for (const RowsCase& rows : {RowsCase{1, 0}, {40, 0}, {33, 0}, {64, 1}}) {
      const std::int64_t stride = rows.cols + (rows.cols % 8 == 0 ? 8 : 1);
      const std::int64_t first = rows.first;
      const auto what = fmt::format("{}, {} experts of {}", rows.name(), experts, places);
      const auto values = [&](std::int64_t count, unsigned seed) {
        return random_values(count * stride + first, seed);
      };
      compare_twins("expert_bias_forward", what, same_bits, bf16_rounding, [&](Side& side) {
        side.kernels.expert_bias_forward(side.stream(),
                                         {.y = side.element_result(values(places, 111)) + first,
                                          .bias = side.elements(values(experts, 112)) + first,
                                          .offsets = side.put(offsets),
                                          .experts = experts,
                                          .places = places,
                                          .cols = rows.cols,
                                          .y_stride = stride,
                                          .stride = stride,
                                          .dtype = side.dtype});
      });
      compare_twins("expert_bias_backward", what, same_bits, same_bits, [&](Side& side) {
        side.kernels.expert_bias_backward(side.stream(),
                                          {.dy = side.elements(values(places, 113)) + first,
                                           .dbias = side.result(values(experts, 114)),
                                           .offsets = side.put(offsets),
                                           .experts = experts,
                                           .places = places,
                                           .cols = rows.cols,
                                           .dy_stride = stride,
                                           .stride = stride,
                                           .dtype = side.dtype});
      });
    }
  }
}

/// C of the places [first, end) of one expert, computed alone.
Exact rows_alone(DType dtype, ExpertProduct which, std::int64_t first, std::int64_t end) {
  constexpr std::int64_t most = 150;
  constexpr std::int64_t n = 72;
  constexpr std::int64_t k = 136;
  const bool output = which == ExpertProduct::output;
  const std::int64_t width = output ? k : n;
  const Values a = random_values(most * width, 107);
  const Numbers offsets = {0, static_cast<std::int32_t>(end - first)};
  Side side = cuda_side();
  side.dtype = dtype;
  side.kernels.expert_matmul(
      side.stream(),
      {.product = which,
       .a = side.elements(Values(a.begin() + first * width, a.begin() + end * width)),
       .b = side.elements(random_values(n * k, 108)),
       .c = side.result(untouched_values((end - first) * (output ? n : k))),
       .offsets = side.put(offsets),
       .experts = 1,
       .places = end - first,
       .n = n,
       .k = k,
       .lda = width,
       .ldb = k,
       .ldc = output ? n : k,
       .stride = n * k,
       .dtype = dtype});
  return side.results();
}

TEST_CASE("cuda: a row's product does not depend on an expert's other rows",
          "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ExpertProduct which : {ExpertProduct::output, ExpertProduct::input}) {
      const Exact all = rows_alone(dtype, which, 0, 150);
      const std::int64_t width = std::ssize(all) / 150;
      for (const auto& [first, end] : {std::pair{0, 1}, {37, 40}, {127, 130}, {149, 150}}) {
        INFO(static_cast<int>(dtype) << " " << static_cast<int>(which) << " from " << first);
        const Exact own(all.begin() + first * width, all.begin() + end * width);
        CHECK(rows_alone(dtype, which, first, end) == own);
      }
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_experts_test
