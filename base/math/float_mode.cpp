#include "base/math/float_mode.hpp"

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace train {

void set_float_mode() noexcept {
  std::fesetenv(FE_DFL_ENV);  // Also sets the x87 unit, which the compiler uses for long double.
#if defined(__x86_64__)
  // The C library does not set the handling of subnormal numbers: here bits 6 and 15 are 0, and the
  // six exceptions masked.
  constexpr unsigned all_masked = 0x1f80;
  _mm_setcsr(all_masked);
#elif defined(__aarch64__)
  constexpr std::uint64_t ieee = 0;
  asm volatile("msr fpcr, %0" : : "r"(ieee));
#endif
}

}  // namespace train
