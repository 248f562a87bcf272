// Tiny models of every published family on the CPU with products of bf16: their gradients are no
// further from those of fp32, which are those of transformers in float64
// (published_parity_test.cpp), than those of transformers in bf16.
#include "tests/engine/parity/published_gradients.hpp"

namespace train::engine::bf16_published_test {

TEST_CASE("bf16 published: every family is as near to fp32 as transformers in bf16",
          "[engine][bf16]") {
  const kernels::KernelTable* const kernels = kernels::cpu_bf16_backend();
  if (kernels == nullptr) {
    WARN("skipped: this processor has no AVX512_BF16, so no products of bf16");
    return;
  }
  for (const std::string& name : testing::published_cases()) {
    INFO(name);
    const auto& entry = testing::published_model(name);
    const auto expected = testing::train(kernels::cpu_backend(), entry, "fp32");
    testing::check_roundings(name, testing::train(*kernels, entry, "bf16"), expected);
  }
}

}  // namespace train::engine::bf16_published_test
