// How many grids a step launches, on the emulated device.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "kernels/gemm/matmul.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "tests/cuda_emulation/block.hpp"
#include "tests/engine/parity/published_gradients.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine {
namespace {

/// A kernel of the device's table, called for each of its tensors alone.
template <auto Kernel, class Params, auto Tensors>
void one_by_one(kernels::Stream& stream, const Params& params) {
  Params one = params;
  for (const auto& tensor : params.*Tensors) {
    one.*Tensors = {tensor};
    (kernels::cuda_backend()->*Kernel)(stream, one);
  }
}

kernels::KernelTable one_by_one_table() {
  using kernels::KernelTable;
  KernelTable table = *kernels::cuda_backend();
  table.adamw_update =
      one_by_one<&KernelTable::adamw_update, kernels::AdamwParams, &kernels::AdamwParams::tensors>;
  table.ademamix_update = one_by_one<&KernelTable::ademamix_update, kernels::AdemamixParams,
                                     &kernels::AdemamixParams::tensors>;
  table.dana_update =
      one_by_one<&KernelTable::dana_update, kernels::DanaParams, &kernels::DanaParams::tensors>;
  table.row_square_sums = one_by_one<&KernelTable::row_square_sums, kernels::RowSquareSumsParams,
                                     &kernels::RowSquareSumsParams::tensors>;
  table.tree_sum =
      one_by_one<&KernelTable::tree_sum, kernels::TreeSumParams, &kernels::TreeSumParams::sums>;
  return table;
}

struct Steps {
  std::int64_t grids = 0;  // Of the last step.
  std::uint64_t digest = 0;
  double grad_norm = 0.0;
};

Steps train(const kernels::KernelTable& table, const WorldStep::Options& options) {
  const auto stream = table.device->make_stream("cuda", 1);
  WorldStep world(table, options);
  Steps steps;
  for (std::int64_t step = 0; step < 2; ++step) {
    const std::int64_t before = cuda_emulation::grids_run();
    steps.grad_norm = world.run(*stream, step, testing::repeating_text(options)).grad_norm;
    stream->synchronize();
    steps.grids = cuda_emulation::grids_run() - before;
  }
  steps.digest = world.digest();
  return steps;
}

WorldStep::Options options_of(std::int64_t layers, const std::string& compute) {
  auto options = testing::small_options(Architecture::enoki);
  ModelShape shape = testing::small_shape(Architecture::enoki);
  shape.layers = layers;
  options.model = shape;
  options.batch.lanes = 1;
  options.batch.micro_batch = 1;  // An emulated device takes milliseconds for each row.
  options.seq_len = 16;
  options.precision.compute = compute;
  return options;
}

std::int64_t products = 0;

/// Products of two steps and an evaluation of a published model.
std::int64_t products_of(const kernels::KernelTable& kernels, const std::string& name) {
  static const kernels::KernelTable* table = nullptr;
  table = &kernels;
  kernels::KernelTable counting = kernels;
  counting.matmul = [](kernels::Stream& stream, const kernels::MatmulParams& params) {
    ++products;
    table->matmul(stream, params);
  };
  products = 0;
  (void)testing::train(counting, testing::published_model(name), "fp32");
  return products;
}

/// Of layers with as many products forwards, and for the gradients of inputs and of weights.
std::int64_t products_of_layers(std::int64_t layers, std::int64_t forward, std::int64_t inputs,
                                std::int64_t weights) {
  return layers * (3 * forward + 2 * (inputs + weights));
}

}  // namespace

TEST_CASE("launches: norms and the update of many tensors in one launch have the bits of one each",
          "[engine][cuda][emulation][P1]") {
  const kernels::KernelTable apart = one_by_one_table();
  const auto compare = [&](const std::string& compute, const std::string& optimizer) {
    CAPTURE(compute, optimizer);
    auto options = options_of(2, compute);
    options.optimizer.name = optimizer;
    const Steps together = train(*kernels::cuda_backend(), options);
    const Steps each = train(apart, options);
    CHECK(together.digest == each.digest);
    CHECK(together.grad_norm == each.grad_norm);
    CHECK(together.grids < each.grids);
    fmt::print("grids of a step with {} in {}: {}; {} where each tensor has its own\n", optimizer,
               compute, together.grids, each.grids);
  };
  compare("fp32", "adamw");
  compare("bf16", "adamw");
  compare("bf16", "ademamix");
  compare("bf16", "dana-star");
}

TEST_CASE("launches: a layer more launches its products and kernels, and no update",
          "[engine][cuda][emulation]") {
  const kernels::KernelTable apart = one_by_one_table();
  for (const char* const optimizer : {"adamw", "dana-star"}) {
    const auto grids = [&](const kernels::KernelTable& table, std::int64_t layers) {
      auto options = options_of(layers, "bf16");
      options.optimizer.name = optimizer;
      return train(table, options).grids;
    };
    const std::int64_t together =
        grids(*kernels::cuda_backend(), 2) - grids(*kernels::cuda_backend(), 1);
    const std::int64_t each = grids(apart, 2) - grids(apart, 1);
    fmt::print("grids of a layer with {}: {}; {} where each tensor has its own\n", optimizer,
               together, each);
    CHECK(together + 20 < each);
  }
}

// Attention has three projections and an output, the MLP a gate, an up and a down projection.
TEST_CASE("launches: products of one input whose weights lie together are a single one",
          "[engine][cuda][emulation]") {
  const kernels::KernelTable& cuda = *kernels::cuda_backend();
  CHECK(products_of(cuda, "llama") == products_of_layers(3, 4, 4, 4));
  // The gradient of an input has the CPU's bits only when its shares are added up one by one.
  CHECK(products_of(kernels::cpu_backend(), "llama") == products_of_layers(3, 5, 7, 5));
  // Biases lie behind all of the projections' weights.
  CHECK(products_of(cuda, "qwen2") == products_of_layers(3, 4, 4, 4));
}

}  // namespace train::engine
