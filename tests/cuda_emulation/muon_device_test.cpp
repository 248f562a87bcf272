// Muon's update on a device that multiplies bf16: matrices of one shape together, products of
// tensor cores, and the CPU's weights but for the order of sums.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "configs/fields/optimizer_table.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/optimizer/muon.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine {
namespace {

struct Calls {
  std::int64_t roundings = 0;      // blend_bf16()
  std::int64_t fp32_products = 0;  // Of fp32 operands.
  std::int64_t products = 0;
};
Calls calls;

kernels::KernelTable counting_table() {
  kernels::KernelTable table = *kernels::cuda_backend();
  table.blend_bf16 = [](kernels::Stream& stream, const kernels::BlendBf16Params& params) {
    ++calls.roundings;
    kernels::cuda_backend()->blend_bf16(stream, params);
  };
  table.matmul = [](kernels::Stream& stream, const kernels::MatmulParams& params) {
    ++calls.products;
    calls.fp32_products += params.dtype == kernels::DType::f32 ? 1 : 0;
    kernels::cuda_backend()->matmul(stream, params);
  };
  return table;
}

WorldStep::Options options_of(const char* optimizer, std::int64_t layers,
                              const std::string& compute) {
  auto options = testing::small_options(Architecture::enoki);
  ModelShape shape = testing::small_shape(Architecture::enoki);
  shape.layers = layers;
  options.model = shape;
  options.batch.lanes = 1;
  options.batch.micro_batch = 1;
  options.seq_len = 16;
  options.precision.compute = compute;
  options.optimizer = configs::default_optimizer(optimizer);
  return options;
}

double train(const kernels::KernelTable& table, const WorldStep::Options& options,
             std::int64_t steps) {
  const auto stream = table.device->make_stream("muon", 1);
  WorldStep world(table, options);
  double loss = 0.0;
  for (std::int64_t step = 0; step < steps; ++step) {
    loss = world.run(*stream, step, testing::repeating_text(options)).loss;
  }
  stream->synchronize();
  return loss;
}

Calls calls_of(const char* optimizer, std::int64_t layers) {
  calls = {};
  train(counting_table(), options_of(optimizer, layers, "bf16"), 1);
  return calls;
}

}  // namespace

TEST_CASE("muon on a device: matrices of one shape are rounded together, and multiplied as bf16",
          "[engine][cuda][emulation][muon]") {
  const Calls one = calls_of("muon", 1);
  const Calls three = calls_of("muon", 3);
  const Calls three_adamw = calls_of("adamw", 3);
  CHECK(one.roundings > 0);
  CHECK(three.roundings == one.roundings);
  CHECK(three.products > three_adamw.products);
  CHECK(three.fp32_products == three_adamw.fp32_products);
}

TEST_CASE("muon on a device: steps have the losses of the CPU, but for the order of sums",
          "[engine][cuda][emulation][muon]") {
  for (const char* const optimizer : {"muon", "d-muon"}) {
    const auto options = options_of(optimizer, 2, "fp32");
    const double expected = train(kernels::cpu_backend(), options, 3);
    const double loss = train(*kernels::cuda_backend(), options, 3);
    fmt::print("{}: loss {:.6f}, on the CPU {:.6f}\n", optimizer, loss, expected);
    CHECK(std::abs(loss - expected) < 2e-4 * expected);
  }
}

TEST_CASE("muon on a device: any number of ranks has the same bits",
          "[engine][cuda][emulation][muon][P1]") {
  const kernels::KernelTable& table = *kernels::cuda_backend();
  const auto digest_at = [&](std::int64_t ranks) {
    auto options = options_of("muon", 2, "bf16");
    options.batch.lanes = 3;
    options.parallel.ranks = ranks;
    options.parallel.strategy = "full";
    const auto stream = table.device->make_stream("muon", 1);
    WorldStep world(table, options);
    for (std::int64_t step = 0; step < 2; ++step) {
      (void)world.run(*stream, step, testing::repeating_text(options));
    }
    stream->synchronize();
    return world.digest();
  };
  const std::uint64_t alone = digest_at(1);
  CHECK(digest_at(2) == alone);
  CHECK(digest_at(3) == alone);
}

}  // namespace train::engine
