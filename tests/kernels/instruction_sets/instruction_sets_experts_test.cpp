// As instruction_sets_test.cpp: the kernels of experts.
#include "tests/kernels/experts_call.hpp"
#include "tests/kernels/instruction_sets.hpp"

namespace train::kernels::testing::instruction_sets_experts_test {
namespace {

std::string of(std::int64_t count) { return fmt::format("of {}", count); }

TEST_CASE("instruction sets: routers", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t experts : kWidths) {
    const ExpertSizes sizes{
        .rows = 9, .experts = experts, .slots = std::min<std::int64_t>(experts, 8)};
    const std::int64_t groups = experts % 4 == 0 ? experts / 4 : 1;
    for (const RouterKind kind : kRouterKinds) {
      compare_sets("router_forward", of(experts), [=](Side& side, Source& values) {
        side.kernels.router_forward(side.stream(),
                                    {.kind = kind,
                                     .logits = side.put(values(sizes.rows * experts)),
                                     .chosen = side.result(Numbers(at(sizes.places()))),
                                     .weights = side.result(zeros(sizes.places())),
                                     .rows = sizes.rows,
                                     .experts = experts,
                                     .slots = sizes.slots});
      });
      compare_sets("router_forward", of(experts) + ", in groups", [=](Side& side, Source& values) {
        side.kernels.router_forward(side.stream(),
                                    {.kind = kind,
                                     .logits = side.put(values(sizes.rows * experts)),
                                     .chosen = side.result(Numbers(at(sizes.places()))),
                                     .weights = side.result(zeros(sizes.places())),
                                     .rows = sizes.rows,
                                     .experts = experts,
                                     .slots = sizes.slots,
                                     .bias = side.put(values(experts)),
                                     .groups = groups,
                                     .kept_groups = std::min(groups, (groups + 3) / 2),
                                     .scale = 2.5F});
      });
      compare_sets("router_backward", of(experts), [=](Side& side, Source& values) {
        side.kernels.router_backward(side.stream(),
                                     {.kind = kind,
                                      .logits = side.put(values(sizes.rows * experts)),
                                      .chosen = side.put(drawn_choices(sizes, 71)),
                                      .weights = side.put(values(sizes.places())),
                                      .dweights = side.put(values(sizes.places())),
                                      .dlogits = side.result(zeros(sizes.rows * experts)),
                                      .rows = sizes.rows,
                                      .experts = experts,
                                      .slots = sizes.slots,
                                      .groups = side.put(Numbers{0, 1, -1, 0, 1, -1, 0, 1, -1}),
                                      .factors = side.put(values(2 * experts)),
                                      .z_factor = side.put(values(1)),
                                      .scale = 2.5F});
      });
    }
  }
}

TEST_CASE("instruction sets: loads and balancing", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t experts : kWidths) {
    const ExpertSizes sizes{
        .rows = 9, .experts = experts, .slots = std::min<std::int64_t>(experts, 8)};
    for (const RouterKind kind : kRouterKinds) {
      compare_sets("router_loads", of(experts), [=](Side& side, Source& values) {
        side.kernels.router_loads(side.stream(),
                                  {.kind = kind,
                                   .logits = side.put(values(sizes.rows * experts)),
                                   .chosen = side.put(drawn_choices(sizes, 72)),
                                   .groups = side.put(Numbers{0, 0, 1, 1, -1, -1, 1, 0, 0}),
                                   .counts = side.result(Numbers(at(2 * experts))),
                                   .probabilities = side.result(zeros(2 * experts)),
                                   .group_rows = side.result(Numbers(2)),
                                   .z_squares = side.result(Exact(1)),
                                   .rows = sizes.rows,
                                   .experts = experts,
                                   .slots = sizes.slots,
                                   .group_count = 2});
      });
    }
    compare_sets("router_balance", of(experts), [=](Side& side, Source& values) {
      side.kernels.router_balance(side.stream(),
                                  {.terms = {{.coeff = 0.1F},
                                             {.scope = BalanceScope::sequence, .coeff = 0.2F},
                                             {.scope = BalanceScope::step, .coeff = 0.3F}},
                                   .term_count = 3,
                                   .counts = side.put(Numbers(at(2 * experts), 3)),
                                   .probabilities = side.put(values(2 * experts)),
                                   .group_rows = side.put(Numbers{5, 4}),
                                   .whole = side.put(Exact(at(experts), 6.0)),
                                   .experts = experts,
                                   .slots = sizes.slots,
                                   .group_count = 2,
                                   .values = side.result(Exact(6)),
                                   .factors = side.result(zeros(2 * experts)),
                                   .z_factor = side.result(zeros(1)),
                                   .tally = side.result(zeros(experts)),
                                   .loads = side.result(Exact(at(2 * experts)))});
    });
  }
}

TEST_CASE("instruction sets: order and groups of rows", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t experts : kWidths) {
    const ExpertSizes sizes{
        .rows = 9, .experts = experts, .slots = std::min<std::int64_t>(experts, 8)};
    compare_sets("expert_sort", of(experts), [=](Side& side, Source&) {
      side.kernels.expert_sort(side.stream(), {.chosen = side.put(drawn_choices(sizes, 73)),
                                               .offsets = side.result(Numbers(at(experts + 1))),
                                               .row_of = side.result(Numbers(at(sizes.places()))),
                                               .slot_of = side.result(Numbers(at(sizes.places()))),
                                               .places = side.result(Numbers(at(sizes.places()))),
                                               .rows = sizes.rows,
                                               .experts = experts,
                                               .slots = sizes.slots});
    });
  }
  compare_sets("router_groups", "documents", [](Side& side, Source&) {
    side.kernels.router_groups(side.stream(), {.positions = side.put(Numbers{0, 1, 2, 0, 1, 0}),
                                               .targets = side.put(Numbers{1, -1, -1, -1, -1, 3}),
                                               .groups = side.result(Numbers(6)),
                                               .sequences = 1,
                                               .seq_len = 6,
                                               .by_document = true});
  });
}

TEST_CASE("instruction sets: products of experts", "[kernels][instruction_sets][P1]") {
  const Numbers offsets = {0, 1, 1, 10, 50};
  for (const ExpertProduct product :
       {ExpertProduct::output, ExpertProduct::input, ExpertProduct::weight}) {
    for (const auto& [n, k] :
         {std::array<std::int64_t, 2>{1, 1}, {5, 7}, {31, 33}, {100, 390}, {48, 385}}) {
      const bool gradient = product == ExpertProduct::weight;
      const ExpertMatmulParams shape{.product = product,
                                     .experts = 4,
                                     .places = 50,
                                     .n = n,
                                     .k = k,
                                     .lda = product == ExpertProduct::output ? k : n,
                                     .ldb = k,
                                     .ldc = product == ExpertProduct::output ? n : k,
                                     .stride = n * k,
                                     .accumulate = n == 48};
      compare_sets("expert_matmul", fmt::format("{} x {}", n, k), [=](Side& side, Source& values) {
        const std::int64_t weights = 4 * shape.stride;
        ExpertMatmulParams p = shape;
        p.a = side.put(values(shape.places * shape.lda));
        p.b = side.put(values(gradient ? shape.places * shape.ldb : weights));
        p.c = side.result(values(gradient ? weights : shape.places * shape.ldc));
        p.offsets = side.put(offsets);
        side.kernels.expert_matmul(side.stream(), p);
      });
    }
  }
}

TEST_CASE("instruction sets: biases of experts", "[kernels][instruction_sets][P1]") {
  const Numbers offsets = {2, 3, 3, 10, 80};
  for (const std::int64_t cols : kWidths) {
    const std::int64_t stride = cols + 3;
    compare_sets("expert_bias_forward", of(cols), [&](Side& side, Source& values) {
      side.kernels.expert_bias_forward(side.stream(), {.y = side.result(values(80 * stride)),
                                                       .bias = side.put(values(4 * stride)),
                                                       .offsets = side.put(offsets),
                                                       .experts = 4,
                                                       .places = 80,
                                                       .cols = cols,
                                                       .y_stride = stride,
                                                       .stride = stride});
    });
    compare_sets("expert_bias_backward", of(cols), [&](Side& side, Source& values) {
      side.kernels.expert_bias_backward(side.stream(), {.dy = side.put(values(80 * stride)),
                                                        .dbias = side.result(zeros(4 * stride)),
                                                        .offsets = side.put(offsets),
                                                        .experts = 4,
                                                        .places = 80,
                                                        .cols = cols,
                                                        .dy_stride = stride,
                                                        .stride = stride});
    });
  }
}

TEST_CASE("instruction sets: rows of slots", "[kernels][instruction_sets][P1]") {
  constexpr ExpertSizes sizes{.rows = 5, .experts = 7, .slots = 3};
  const Sorted order = sorted(drawn_choices(sizes, 74), sizes);
  for (const std::int64_t cols : kWidths) {
    compare_sets("gather_rows", of(cols), [&](Side& side, Source& values) {
      side.kernels.gather_rows(side.stream(), {.x = side.put(values(sizes.rows * cols)),
                                               .index = side.put(order.row_of),
                                               .y = side.result(zeros(sizes.places() * cols)),
                                               .count = sizes.places(),
                                               .cols = cols});
    });
    for (const bool accumulate : {false, true}) {
      compare_sets("combine_rows", of(cols), [&](Side& side, Source& values) {
        side.kernels.combine_rows(
            side.stream(), {.parts = side.put(values(sizes.places() * cols)),
                            .places = side.put(order.places),
                            .weights = accumulate ? nullptr : side.put(values(sizes.places())),
                            .y = side.result(values(sizes.rows * cols)),
                            .rows = sizes.rows,
                            .slots = sizes.slots,
                            .cols = cols,
                            .accumulate = accumulate});
      });
    }
    compare_sets("slot_weights_backward", of(cols), [&](Side& side, Source& values) {
      side.kernels.slot_weights_backward(side.stream(),
                                         {.dh = side.result(values(sizes.places() * cols)),
                                          .h = side.result(values(sizes.places() * cols)),
                                          .slot_of = side.put(order.slot_of),
                                          .weights = side.put(values(sizes.places())),
                                          .dweights = side.result(zeros(sizes.places())),
                                          .count = sizes.places(),
                                          .cols = cols});
    });
  }
}

}  // namespace
}  // namespace train::kernels::testing::instruction_sets_experts_test
