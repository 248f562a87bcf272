#pragma once

#include <hwy/targets.h>

#include <cstdint>

// The instruction sets that the CPU's kernels are compiled for, chosen by hand: this process's
// kernels alone, and none may be running meanwhile.
namespace train::test {

inline bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }

/// As long as it lives, kernels run as on a processor without those instructions.
class WithoutInstructions {
 public:
  explicit WithoutInstructions(std::int64_t targets) { choose_again(targets); }
  ~WithoutInstructions() { choose_again(0); }
  WithoutInstructions(const WithoutInstructions&) = delete;
  WithoutInstructions& operator=(const WithoutInstructions&) = delete;

 private:
  static void choose_again(std::int64_t disabled) {
    hwy::DisableTargets(disabled);
    hwy::GetChosenTarget().DeInit();
  }
};

class WithoutAvx512 : public WithoutInstructions {
 public:
  WithoutAvx512() : WithoutInstructions(HWY_AVX3 | HWY_AVX3_DL) {}
};

}  // namespace train::test
