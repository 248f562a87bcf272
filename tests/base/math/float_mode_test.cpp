#include "base/math/float_mode.hpp"

#include <catch2/catch.hpp>
#include <cfenv>
#include <limits>
#include <stop_token>

#include "base/process/joined_thread.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace train {
namespace {

/// Rounded up, subnormal numbers lost, for as long as this lives.
struct SpoiltMode {
  SpoiltMode() {
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040U);
#endif
  }
  ~SpoiltMode() { set_float_mode(); }
  SpoiltMode(const SpoiltMode&) = delete;
  SpoiltMode& operator=(const SpoiltMode&) = delete;
};

/// Computed where it is called.
bool is_ieee_mode() {
  volatile double least = std::numeric_limits<double>::denorm_min();
  volatile double normal = std::numeric_limits<double>::min();
  volatile double one = 1.0;
  const bool keeps_arguments = least * 0x1p100 > 0.0;
  const bool keeps_results = normal * 0.5 > 0.0;
  return one + 0x1p-60 == one && keeps_arguments && keeps_results;
}

TEST_CASE("float mode: is IEEE's default after it was set", "[base][float_mode][P1]") {
  const SpoiltMode spoilt;
  const bool before = is_ieee_mode();
  set_float_mode();
  const bool after = is_ieee_mode();
  CHECK_FALSE(before);
  CHECK(after);
}

TEST_CASE("float mode: threads of a spoilt thread have it", "[base][float_mode][P1]") {
  bool with_token = false;
  bool without = false;
  bool ours = true;
  {
    const SpoiltMode spoilt;
    JoinedThread([&](const std::stop_token& /*stop*/) { with_token = is_ieee_mode(); }).join();
    JoinedThread([&] { without = is_ieee_mode(); }).join();
    ours = is_ieee_mode();
  }
  CHECK(with_token);
  CHECK(without);
  CHECK_FALSE(ours);
}

}  // namespace
}  // namespace train
