#pragma once

#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>

// The instruction sets that the CPU's kernels are compiled for, chosen by hand: this process's
// kernels alone, and none may be running meanwhile.
namespace train::test {

inline bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }

/// Which of them kernels run on that are started now; equal numbers are equal sets. REQUIRES: a
/// kernel has run since they were chosen.
inline std::size_t chosen_instructions() { return hwy::GetChosenTarget().GetIndex(); }

/// From now on kernels run as on a processor without those instructions; 0: as they do by
/// themselves. Highway's DisableTargets() would not do: the next call of SupportedTargets(), and so
/// of cpu_backend(), chooses among all of the processor's again.
inline void do_without_instructions(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(0);
  if (targets != 0) {
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~targets);
  }
}

constexpr std::int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;

/// As long as it lives, kernels run as on a processor without those instructions.
class WithoutInstructions {
 public:
  explicit WithoutInstructions(std::int64_t targets) { do_without_instructions(targets); }
  ~WithoutInstructions() { do_without_instructions(0); }
  WithoutInstructions(const WithoutInstructions&) = delete;
  WithoutInstructions& operator=(const WithoutInstructions&) = delete;
};

class WithoutAvx512 : public WithoutInstructions {
 public:
  WithoutAvx512() : WithoutInstructions(kAvx512) {}
};

}  // namespace train::test
