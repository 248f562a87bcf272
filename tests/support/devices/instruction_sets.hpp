#pragma once

#include <hwy/targets.h>

#include <cstddef>
#include <cstdint>

// Selection of the instruction sets of the CPU's kernels: for this process only, and while no
// kernel is running.
namespace train::test {

inline bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }

/// Identifies the instruction set of kernels started now; equal numbers are equal sets. REQUIRES: a
/// kernel has run since the selection.
inline std::size_t chosen_instructions() { return hwy::GetChosenTarget().GetIndex(); }

/// Runs kernels from now on as on a processor without these instructions; 0: as by default.
/// Highway's DisableTargets() is not enough: the next call of SupportedTargets(), and so of
/// cpu_backend(), selects among all of the processor's sets again.
inline void do_without_instructions(std::int64_t targets) {
  hwy::SetSupportedTargetsForTest(0);
  if (targets != 0) {
    hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~targets);
  }
}

constexpr std::int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;

/// Guard during which kernels run as on a processor without these instructions.
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
