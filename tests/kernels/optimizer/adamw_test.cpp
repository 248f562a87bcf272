#include "kernels/optimizer/adamw.hpp"

#include <algorithm>
#include <vector>

#include "kernels/activation/elementwise.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::adamw_test {
namespace {

struct State {
  Values p, m, v;
};

constexpr double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;

void update(State& state, const Values& g, const UpdateGuard& guard, std::int64_t step,
            int threads = 2) {
  run(
      [&](Stream& stream) {
        cpu::adamw_update(stream, {.tensors = {{.p = state.p.data(),
                                                .g = g.data(),
                                                .m = state.m.data(),
                                                .v = state.v.data(),
                                                .count = std::ssize(g)}},
                                   .guard = &guard,
                                   .step = step,
                                   .lr = lr,
                                   .beta1 = beta1,
                                   .beta2 = beta2,
                                   .eps = eps,
                                   .weight_decay = weight_decay});
      },
      threads);
}

TEST_CASE("adamw: several steps agree with the formulas in double", "[kernels][adamw]") {
  for (const std::int64_t count : {1, 7, 64, 257, 40'001}) {
    State state{.p = random_values(count, 1), .m = zeros(count), .v = zeros(count)};
    Exact p = exact(state.p);
    Exact m(p.size());
    Exact v(p.size());
    const UpdateGuard guard{.grad_scale = 0.5F};
    for (int step = 1; step <= 5; ++step) {
      const Values g = random_values(count, 10U + static_cast<unsigned>(step));
      update(state, g, guard, step);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double gradient = 0.5 * static_cast<double>(g[i]);
        p[i] *= 1.0 - lr * weight_decay;
        m[i] = beta1 * m[i] + (1.0 - beta1) * gradient;
        v[i] = beta2 * v[i] + (1.0 - beta2) * gradient * gradient;
        const double root = std::sqrt(v[i]) / std::sqrt(1.0 - std::pow(beta2, step));
        p[i] -= lr / (1.0 - std::pow(beta1, step)) * m[i] / (root + eps);
      }
    }
    // Five steps of float rounding; an update has size lr, its error is lr * 1e-6 at most.
    require_near(state.p, p, 5e-7, "p");
    require_near(state.m, m, 5e-7, "m");
    require_near(state.v, v, 5e-7, "v");
  }
}

TEST_CASE("adamw: it writes the weights as bf16 too", "[kernels][adamw]") {
  constexpr std::int64_t count = 40'001;
  Values p = random_values(count, 1);
  Values m = zeros(count);
  Values v = zeros(count);
  const Values g = random_values(count, 2);
  const UpdateGuard guard;
  std::vector<std::uint16_t> rounded(p.size());
  std::vector<std::uint16_t> packed(p.size());
  run([&](Stream& stream) {
    cpu::adamw_update(stream, {.tensors = {{.p = p.data(),
                                            .g = g.data(),
                                            .m = m.data(),
                                            .v = v.data(),
                                            .rounded = rounded.data(),
                                            .count = count}},
                               .guard = &guard,
                               .lr = lr});
    cpu::pack_bf16(stream, {.in = p.data(), .out = packed.data(), .count = count});
  });
  CHECK(rounded == packed);
}

TEST_CASE("adamw: a non-finite gate changes nothing", "[kernels][adamw]") {
  State state{.p = random_values(100, 1), .m = random_values(100, 2), .v = Values(100, 1.0F)};
  const State before = state;
  const UpdateGuard guard{.nonfinite = 1};
  update(state, Values(100, std::nanf("")), guard, 1);
  REQUIRE(state.p == before.p);
  REQUIRE(state.m == before.m);
  REQUIRE(state.v == before.v);
}

TEST_CASE("adamw: the gate is read when the stream comes to it", "[kernels][adamw]") {
  State state{.p = {1.0F}, .m = {0.0F}, .v = {0.0F}};
  const Values g = {1.0F};
  UpdateGuard guard;
  const AdamwParams params{.tensors = {{.p = state.p.data(),
                                        .g = g.data(),
                                        .m = state.m.data(),
                                        .v = state.v.data(),
                                        .count = 1}},
                           .guard = &guard,
                           .step = 1,
                           .lr = lr};
  run([&](Stream& stream) {
    stream.enqueue([&] { guard.nonfinite = 1; });
    cpu::adamw_update(stream, params);
  });
  REQUIRE(state.p[0] == 1.0F);
}

TEST_CASE("adamw: the bits do not depend on the threads, nor on where a shard begins",
          "[kernels][adamw]") {
  const Values g = random_values(60'001, 3);
  const UpdateGuard guard;
  const State start{.p = random_values(60'001, 1),
                    .m = random_values(60'001, 2, 0.1F),
                    .v = Values(60'001, 0.01F)};
  const auto compute = [&](int threads) {
    State state = start;
    update(state, g, guard, 3, threads);
    return joined({state.p, state.m, state.v});
  };
  require_same_bits(compute, "adamw");
  const Values whole = compute(1);
  for (const std::int64_t first : {1L, 33'333L}) {
    State shard{.p = {start.p.begin() + first, start.p.end()},
                .m = {start.m.begin() + first, start.m.end()},
                .v = {start.v.begin() + first, start.v.end()}};
    update(shard, {g.begin() + first, g.end()}, guard, 3);
    REQUIRE(std::equal(shard.p.begin(), shard.p.end(), whole.begin() + first));
  }
}

TEST_CASE("adamw: pieces of any length and alignment give the bits of the whole",
          "[kernels][adamw]") {
  constexpr std::int64_t count = 301;
  const Values g = random_values(count, 3);
  const UpdateGuard guard{.grad_scale = 0.7F};
  const State start{.p = random_values(count, 1),
                    .m = random_values(count, 2, 0.1F),
                    .v = Values(at(count), 0.01F)};
  const auto in_pieces = [&](std::int64_t cut) {
    State state = start;
    run([&](Stream& stream) {
      for (std::int64_t first = 0; first < count; first += cut) {
        cpu::adamw_update(stream, {.tensors = {{.p = state.p.data() + first,
                                                .g = g.data() + first,
                                                .m = state.m.data() + first,
                                                .v = state.v.data() + first,
                                                .count = std::min(cut, count - first)}},
                                   .guard = &guard,
                                   .step = 4,
                                   .lr = lr,
                                   .weight_decay = weight_decay});
      }
    });
    return joined({state.p, state.m, state.v});
  };
  const Values whole = in_pieces(count);
  REQUIRE(whole != joined({start.p, start.m, start.v}));
  for (std::int64_t cut = 1; cut < 70; ++cut) {
    CAPTURE(cut);
    REQUIRE(in_pieces(cut) == whole);
  }
}

}  // namespace
}  // namespace train::kernels::testing::adamw_test
