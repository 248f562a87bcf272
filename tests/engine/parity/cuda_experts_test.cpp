// Tiny models of every family with experts on a device, with the weights and tokens of
// fixtures/experts.json. In fp32 their losses and gradients are the CPU's, which are those of
// transformers in float64 (experts_parity_test.cpp). In bf16 they are nearly so: a row whose choice
// is close may choose otherwise, so a bound can only tell a wrong gradient from a rounded one.
#include "tests/engine/parity/expert_models.hpp"
#include "tests/engine/parity/published_gradients.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::engine::cuda_experts_test {
namespace {

void set_experts(WorldStep& world, const testing::Json& entry) {
  HostState rows(world.rank(0).device(), world.rank(0).state().views());
  rows.load();
  for (const UnitParameters& unit : world.rank(0).plan().units()) {
    for (const Parameter& parameter : unit.parameters) {
      const auto view =
          std::ranges::find(rows.views(), "model." + parameter.name, &StateView::name);
      if (!parameter.tallied) {
        REQUIRE(view != rows.views().end());
        testing::fill_experts(
            entry, parameter,
            {reinterpret_cast<float*>(view->data), view->size_bytes / sizeof(float)});
      }
    }
  }
  rows.store();
  world.rank(0).state().finalize_restored();
}

/// Losses of two steps and gradients of the first. The second reads the loads of the first.
testing::Trained train_experts(const kernels::KernelTable& kernels, const testing::Json& entry,
                               const std::string& compute) {
  WorldStep::Options options = testing::published_options(entry);
  options.precision.compute = compute;
  options.optimizer.lr = 1e-3;
  const auto stream = kernels.device->make_stream("compute", 2);
  WorldStep world(kernels, options);
  set_experts(world, entry);
  testing::Trained trained;
  for (std::int64_t step = 0; step < 2; ++step) {
    const StepResult result = world.run(*stream, step, testing::tokens_of(entry));
    REQUIRE_FALSE(result.nonfinite);
    trained.losses.push_back(result.loss);
    if (step == 0) {
      trained.gradients = testing::gradients_of(kernels, world.rank(0));
    }
  }
  return trained;
}

/// |found - expected| / |expected| over the elements of all tensors.
double relative_error(const testing::Gradients& found, const testing::Gradients& expected) {
  double error = 0.0;
  double size = 0.0;
  for (const auto& [name, values] : expected) {
    error = std::hypot(error, testing::norm_of(testing::difference(found.at(name), values)));
    size = std::hypot(size, testing::norm_of(values));
  }
  return error / size;
}

void check_bf16(const std::string& name, const testing::Trained& bf16,
                const testing::Trained& expected) {
  const double rounded = relative_error(bf16.gradients, expected.gradients);
  fmt::print("{:<24} bf16: loss {:.1e}, gradients {:.1e}\n", name,
             std::abs(bf16.losses[0] - expected.losses[0]), rounded);
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    // The shortest cases have 18 tokens, of which rounding sends some to other experts.
    CHECK(std::abs(bf16.losses[i] - expected.losses[i]) <= 6e-2);
  }
  CHECK(rounded > 1e-4);  // It is bf16.
  CHECK(rounded <= 0.2);  // The CPU's products of bf16 are off by up to 0.13.
}

}  // namespace

TEST_CASE("cuda experts: every family has the CPU's losses and gradients, in bf16 nearly",
          "[.gpu][drawn][engine]") {
  if (kernels::testing::no_device()) {
    return;
  }
  const auto names = testing::expert_cases();
  const auto in_bf16 = kernels::testing::drawn_if_emulated(names, names.size() / 3 + 1);
  for (const std::string& name : names) {
    INFO(name);
    const testing::Json& entry = testing::expert_models().at("cases").at(name);
    const testing::Trained expected = train_experts(kernels::cpu_backend(), entry, "fp32");
    const testing::Trained fp32 = train_experts(*kernels::cuda_backend(), entry, "fp32");
    const double worst = testing::worst_element(fp32.gradients, expected.gradients);
    fmt::print("{:<24} fp32 off by {:.1e}\n", name, worst);
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      CHECK(std::abs(fp32.losses[i] - expected.losses[i]) <= 1e-5);
    }
    CHECK(worst <= 1e-5);
    if (std::ranges::find(in_bf16, name) != in_bf16.end()) {
      check_bf16(name, train_experts(*kernels::cuda_backend(), entry, "bf16"), expected);
    }
  }
}

}  // namespace train::engine::cuda_experts_test
