#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tests/engine/rank/small_model.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::engine::cuda_run_test {
namespace {

/// Trains on both devices, the same steps; prints the largest difference of a loss.
void compare_runs(const std::string& name, const WorldStep::Options& options) {
  if (kernels::testing::no_device()) {
    return;
  }
  const std::int64_t steps = kernels::testing::emulated_device() ? 3 : 50;
  const auto text = testing::repeating_text(options);
  const kernels::KernelTable& cuda = *kernels::cuda_backend();
  const auto cpu_stream = kernels::make_thread_stream("cpu", 2);
  const auto cuda_stream = cuda.device->make_stream("cuda", 1);
  WorldStep on_cpu(kernels::cpu_backend(), options);
  WorldStep on_cuda(cuda, options);
  CHECK(on_cuda.digest() == on_cpu.digest());
  double worst = 0.0;
  double first = 0.0;
  double last = 0.0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const StepResult expected = on_cpu.run(*cpu_stream, step, text);
    const StepResult result = on_cuda.run(*cuda_stream, step, text);
    REQUIRE_FALSE(result.nonfinite);
    worst = std::max(worst, std::abs(result.loss - expected.loss));
    first = step == 0 ? result.loss : first;
    last = result.loss;
  }
  const EvaluationResult expected = on_cpu.evaluate(*cpu_stream, text);
  const EvaluationResult evaluation = on_cuda.evaluate(*cuda_stream, text);
  worst = std::max(worst, std::abs(evaluation.cross_entropy - expected.cross_entropy));
  fmt::print("{} steps of {}: loss {:.4f} to {:.4f}, off by {:.2e} at most\n", steps, name, first,
             last, worst);
  CHECK(last < first);
  CHECK(worst <= 1e-5);
}

WorldStep::Options options_of(Architecture architecture) {
  auto options = testing::small_options(architecture);
  options.eval_lanes = 2;
  options.optimizer.lr = 1e-3;
  options.optimizer.grad_clip = 1.0;
  return options;
}

}  // namespace

TEST_CASE("cuda run: steps have the losses of the CPU", "[.gpu][engine]") {
  compare_runs("enoki", options_of(Architecture::enoki));
  compare_runs("qwen3", options_of(Architecture::dstar_qwen3));
}

}  // namespace train::engine::cuda_run_test
