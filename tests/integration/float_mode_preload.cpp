// A library to preload, as bad as a library can be: where it is loaded, and in each thread that
// starts, numbers are rounded up and subnormal ones are lost. One built with -ffast-math does the
// latter.
#include <dlfcn.h>
#include <pthread.h>

#include <cfenv>
#include <memory>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

void spoil_float_mode() {
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  constexpr unsigned flush_to_zero = 0x8000;
  constexpr unsigned subnormals_are_zero = 0x0040;
  _mm_setcsr(_mm_getcsr() | flush_to_zero | subnormals_are_zero);
#endif
}

__attribute__((constructor)) void when_loaded() { spoil_float_mode(); }

struct Start {
  void* (*body)(void*);
  void* argument;
};

void* spoilt(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  spoil_float_mode();
  return start->body(start->argument);
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  auto start = std::make_unique<Start>(Start{body, argument});
  const int failed = create(thread, attributes, spoilt, start.get());
  if (failed == 0) {
    start.release();
  }
  return failed;
}
