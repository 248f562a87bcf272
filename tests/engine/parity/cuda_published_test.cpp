// Tiny models of every published family on a device, with the weights and tokens of
// fixtures/models.json. In fp32 its losses and gradients are the CPU's, which are those of
// transformers in float64 (published_parity_test.cpp). In bf16 they are no further from those than
// those of transformers in bf16 (fixtures/models_bf16.json).
#include "tests/engine/parity/published_gradients.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::engine::cuda_published_test {
namespace {

void compare_family(const std::string& name, bool in_bf16) {
  INFO(name);
  const auto& entry = testing::published_model(name);
  const kernels::KernelTable& cuda = *kernels::cuda_backend();
  const auto expected = testing::train(kernels::cpu_backend(), entry, "fp32");
  const auto fp32 = testing::train(cuda, entry, "fp32");
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    CHECK(std::abs(fp32.losses[i] - expected.losses[i]) <= 1e-5);
  }
  const double worst = testing::worst_element(fp32.gradients, expected.gradients);
  fmt::print("{:<20} fp32 off by {:.1e}\n", name, worst);
  CHECK(worst <= 1e-5);
  if (in_bf16) {
    testing::check_roundings(name, testing::train(cuda, entry, "bf16"), expected);
  }
}

}  // namespace

// Also where nothing of the sources is, and no device: in a bundle.
TEST_CASE("cuda published: the fixtures are there", "[engine][fixtures]") {
  CHECK(testing::published_cases().size() > 5);
  CHECK_FALSE(testing::published_in_bf16().empty());
}

TEST_CASE("cuda published: every family has the CPU's losses and gradients, in bf16 nearly",
          "[.gpu][drawn][engine]") {
  if (kernels::testing::no_device()) {
    return;
  }
  const auto names = testing::published_cases();
  const auto in_bf16 = kernels::testing::drawn_if_emulated(names, names.size() / 3 + 1);
  for (const std::string& name : names) {
    compare_family(name, std::ranges::find(in_bf16, name) != in_bf16.end());
  }
}

}  // namespace train::engine::cuda_published_test
