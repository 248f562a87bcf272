// Layers of experts in bf16: the grouped products beside the limit of products, and what moves
// rows to the experts and back beside that of copies.
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "bench/gpu/gpu_kernel_bench.hpp"
#include "kernels/experts/experts.hpp"

namespace train::bench {
namespace {

using namespace kernels;

/// Choices of random logits and where they lie.
struct Routes {
  float* logits = nullptr;
  float* weights = nullptr;
  float* dweights = nullptr;
  ExpertSortParams sort = {};
};

Routes routes_of(KernelBench& bench, const ExpertsCase& c) {
  const std::int64_t places = c.rows * c.slots;
  const auto integers = [&](std::int64_t count) {
    return bench.empty<std::int32_t>(static_cast<std::size_t>(count) * sizeof(std::int32_t));
  };
  Routes routes{.logits = bench.fp32(c.rows * c.experts),
                .weights = bench.fp32(places),
                .dweights = bench.fp32(places)};
  std::int32_t* chosen = integers(places);
  routes.sort = {.chosen = chosen,
                 .offsets = integers(c.experts + 1),
                 .row_of = integers(places),
                 .slot_of = integers(places),
                 .places = integers(places),
                 .rows = c.rows,
                 .experts = c.experts,
                 .slots = c.slots};
  const auto logits_bytes = static_cast<double>(4 * c.rows * c.experts);
  bench.row("router_forward " + c.shape(), 0, logits_bytes, [&](Stream& stream) {
    bench.kernels().router_forward(stream, {.kind = RouterKind::softmax_normalised,
                                            .logits = routes.logits,
                                            .chosen = chosen,
                                            .weights = routes.weights,
                                            .rows = c.rows,
                                            .experts = c.experts,
                                            .slots = c.slots});
  });
  bench.row("expert_sort " + c.shape(), 0, static_cast<double>(16 * places),
            [&](Stream& stream) { bench.kernels().expert_sort(stream, routes.sort); });
  return routes;
}

/// The products of one of a layer's three matrices, `outputs` x `inputs` for each expert.
void grouped_products(KernelBench& bench, const ExpertsCase& c, const Routes& routes,
                      std::int64_t outputs, std::int64_t inputs) {
  const std::int64_t places = c.rows * c.slots;
  const std::byte* x = bench.bf16(places * inputs);
  const std::byte* y = bench.bf16(places * outputs);
  const std::byte* w = bench.bf16(c.experts * outputs * inputs);
  std::byte* to_y = bench.bf16(places * outputs);
  std::byte* to_x = bench.bf16(places * inputs);
  float* to_w = bench.fp32(c.experts * outputs * inputs);
  const auto flop = static_cast<double>(2 * places * outputs * inputs);
  const auto product = [&](const std::string& name, ExpertMatmulParams params) {
    params.offsets = routes.sort.offsets;
    params.experts = c.experts;
    params.places = places;
    params.n = outputs;
    params.k = inputs;
    params.ldb = inputs;
    params.stride = outputs * inputs;
    params.dtype = DType::bf16;
    bench.row(fmt::format("expert_matmul {} {}, {} -> {}", name, c.shape(), inputs, outputs), flop,
              0,
              [&bench, params](Stream& stream) { bench.kernels().expert_matmul(stream, params); });
  };
  product("y = x W^T  ", {.product = ExpertProduct::output,
                          .a = x,
                          .b = w,
                          .c = to_y,
                          .lda = inputs,
                          .ldc = outputs,
                          .output_dtype = DType::bf16});
  product("dx = dy W  ", {.product = ExpertProduct::input,
                          .a = y,
                          .b = w,
                          .c = to_x,
                          .lda = outputs,
                          .ldc = inputs,
                          .output_dtype = DType::bf16});
  product(
      "dW = dy^T x",
      {.product = ExpertProduct::weight, .a = y, .b = x, .c = to_w, .lda = outputs, .ldc = inputs});
}

void moved_rows(KernelBench& bench, const ExpertsCase& c, const Routes& routes) {
  const std::int64_t places = c.rows * c.slots;
  std::byte* x = bench.bf16(c.rows * c.width);
  std::byte* parts = bench.bf16(places * c.width);
  std::byte* h = bench.bf16(places * c.hidden);
  std::byte* dh = bench.bf16(places * c.hidden);
  const auto row_bytes = static_cast<double>(c.width) * static_cast<double>(kHalf);
  const auto hidden_bytes = static_cast<double>(c.hidden) * static_cast<double>(kHalf);
  const auto of_places = static_cast<double>(places);
  bench.row("gather_rows " + c.shape(), 0, 2 * of_places * row_bytes, [&](Stream& stream) {
    bench.kernels().gather_rows(stream, {.x = x,
                                         .index = routes.sort.row_of,
                                         .y = parts,
                                         .count = places,
                                         .cols = c.width,
                                         .dtype = DType::bf16});
  });
  bench.row("combine_rows " + c.shape(), 0, (of_places + static_cast<double>(c.rows)) * row_bytes,
            [&](Stream& stream) {
              bench.kernels().combine_rows(stream, {.parts = parts,
                                                    .places = routes.sort.places,
                                                    .weights = routes.weights,
                                                    .y = x,
                                                    .rows = c.rows,
                                                    .slots = c.slots,
                                                    .cols = c.width,
                                                    .dtype = DType::bf16});
            });
  bench.row("slot_weights_backward " + c.shape(), 0, 4 * of_places * hidden_bytes,
            [&](Stream& stream) {
              bench.kernels().slot_weights_backward(stream, {.dh = dh,
                                                             .h = h,
                                                             .slot_of = routes.sort.slot_of,
                                                             .weights = routes.weights,
                                                             .dweights = routes.dweights,
                                                             .count = places,
                                                             .cols = c.hidden,
                                                             .dtype = DType::bf16});
            });
}

}  // namespace

void measure_experts(KernelBench& bench, const ExpertsCase& c) {
  const Routes routes = routes_of(bench, c);
  grouped_products(bench, c, routes, c.hidden, c.width);
  grouped_products(bench, c, routes, c.width, c.hidden);
  moved_rows(bench, c, routes);
  bench.forget();
}

}  // namespace train::bench
