// As instruction_sets_test.cpp: norms of gradients, and optimizers.
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/average.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "tests/kernels/instruction_sets.hpp"

namespace train::kernels::testing::instruction_sets_update_test {
namespace {

std::string of(std::int64_t count) { return fmt::format("of {}", count); }

const UpdateGuard* guard_of(Side& side) {
  return side.put(std::vector<UpdateGuard>{{.grad_scale = 0.7F}});
}

TEST_CASE("instruction sets: norms of gradients", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t cols : kWidths) {
    compare_sets("row_square_sums", of(cols), [=](Side& side, Source& values) {
      side.kernels.row_square_sums(side.stream(), {.tensors = {{.x = side.put(values(5 * cols)),
                                                                .row_sums = side.result(Exact(5)),
                                                                .rows = 5,
                                                                .cols = cols}}});
    });
    compare_sets("tree_sum", of(cols), [=](Side& side, Source& values) {
      side.kernels.tree_sum(side.stream(), {.sums = {{.values = side.put(exact(values(3 * cols))),
                                                      .out = side.result(Exact(1)),
                                                      .count = cols,
                                                      .stride = 3}}});
    });
    compare_sets("clip_scale", of(cols), [=](Side& side, Source& values) {
      side.kernels.clip_scale(side.stream(), {.squared_norm = side.put(exact(values.positive(1))),
                                              .cross_entropy = side.put(exact(values(1))),
                                              .z_squared = side.put(exact(values(1))),
                                              .guard = side.result(std::vector<UpdateGuard>(1)),
                                              .loss_scale = 0.3,
                                              .z_scale = 1e-3,
                                              .clip = 0.1F});
    });
  }
}

TEST_CASE("instruction sets: AdamW and AdEMAMix", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t n : kWidths) {
    compare_sets("adamw_update", of(n), [n](Side& side, Source& values) {
      side.kernels.adamw_update(
          side.stream(), {.tensors = {{.p = side.result(values(n)),
                                       .g = side.put(values(n)),
                                       .m = side.result(values(n)),
                                       .v = side.result(values.positive(n)),
                                       .rounded = side.result(std::vector<std::uint16_t>(at(n))),
                                       .count = n}},
                          .guard = guard_of(side),
                          .step = 7,
                          .lr = 3e-3,
                          .weight_decay = 0.1,
                          .decay_after = 0.01});
    });
    compare_sets("ademamix_update", of(n), [n](Side& side, Source& values) {
      side.kernels.ademamix_update(side.stream(),
                                   {.tensors = {{.p = side.result(values(n)),
                                                 .g = side.put(values(n)),
                                                 .fast = side.result(values(n)),
                                                 .slow = side.result(values(n)),
                                                 .v = side.result(values.positive(n)),
                                                 .count = n}},
                                    .guard = guard_of(side),
                                    .step = 7,
                                    .lr = 3e-3,
                                    .decay = 0.01});
    });
  }
}

TEST_CASE("instruction sets: ADana and Dana-Star", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t cols : kWidths) {
    for (const bool star : {false, true}) {
      for (const bool sums : {false, true}) {
        compare_sets("dana_update", of(cols), [=](Side& side, Source& values) {
          const std::int64_t n = 3 * cols;
          side.kernels.dana_update(
              side.stream(),
              {.tensors = {{.p = side.result(values(n)),
                            .g = side.put(values(n)),
                            .m = side.result(values(n)),
                            .v = side.result(values.positive(n)),
                            .tau = star ? side.result(values.positive(n)) : nullptr,
                            .row_sums = sums ? side.result(std::vector<DanaRowSums>(3)) : nullptr,
                            .rows = 3,
                            .cols = cols}},
               .guard = guard_of(side),
               .step = 7,
               .lr = 3e-3,
               .clip = 2.0,
               .decay = 0.01});
        });
      }
    }
  }
}

TEST_CASE("instruction sets: the running average", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t n : kWidths) {
    compare_sets("average_update", of(n), [n](Side& side, Source& values) {
      side.kernels.average_update(
          side.stream(),
          {.tensors = {{.average = side.result(values(n)), .p = side.put(values(n)), .count = n}},
           .share = 0.07F});
    });
  }
}

TEST_CASE("instruction sets: Muon", "[kernels][instruction_sets][P1]") {
  for (const std::int64_t n : kWidths) {
    for (const bool nesterov : {false, true}) {
      compare_sets("muon_momentum", of(n), [=](Side& side, Source& values) {
        side.kernels.muon_momentum(side.stream(), {.g = side.put(values(n)),
                                                   .m = side.result(values(n)),
                                                   .x = side.result(zeros(n)),
                                                   .guard = guard_of(side),
                                                   .count = n,
                                                   .nesterov = nesterov});
      });
    }
    compare_sets("muon_normalise", of(n), [n](Side& side, Source& values) {
      side.kernels.muon_normalise(side.stream(),
                                  {.x = side.result(values(n)),
                                   .squared_norm = side.put(exact(values.positive(1))),
                                   .count = n,
                                   .least = 1e-7,
                                   .added = 1e-7});
    });
    compare_sets("blend_bf16", of(n), [n](Side& side, Source& values) {
      side.kernels.blend_bf16(side.stream(), {.x = side.put(values(n)),
                                              .y = side.put(values(n)),
                                              .out = side.result(zeros(n)),
                                              .count = n,
                                              .a = 3.4445,
                                              .b = -4.775});
    });
    compare_sets("muon_apply", of(n), [n](Side& side, Source& values) {
      side.kernels.muon_apply(side.stream(), {.p = side.result(values(n)),
                                              .x = side.put(values(n)),
                                              .guard = guard_of(side),
                                              .count = n,
                                              .decay = 0.01,
                                              .step_size = 3e-3});
    });
  }
}

}  // namespace
}  // namespace train::kernels::testing::instruction_sets_update_test
