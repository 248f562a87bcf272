#include "base/process/stack_limit.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "base/exit_codes.hpp"

namespace train {
namespace {

constexpr rlim_t kLeast = rlim_t{256} << 10;
constexpr rlim_t kWanted = rlim_t{8} << 20;  // Usual default of Linux.

/// Threads take the soft limit of the program's start, whatever it is later.
void set_thread_stacks(std::size_t bytes) {
  pthread_attr_t attributes;
  if (::pthread_attr_init(&attributes) == 0) {
    if (::pthread_attr_setstacksize(&attributes, bytes) == 0) {
      (void)::pthread_setattr_default_np(&attributes);
    }
    ::pthread_attr_destroy(&attributes);
  }
}

/// Runs before the libraries' own initializers, one of which takes nearly 40 KiB of the main
/// thread's stack: raises a limit that is too small for them, or says so.
void make_room_for_initializers() {
  constexpr rlim_t kInitializers = rlim_t{48} << 10;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kInitializers) {
    return;
  }
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, kInitializers);
  if (limit.rlim_cur < kInitializers || ::setrlimit(RLIMIT_STACK, &limit) != 0) {
    ::dprintf(STDERR_FILENO,
              "error the stack may have %llu KiB, and %llu KiB are needed; raise `ulimit -s`\n",
              static_cast<unsigned long long>(before >> 10U),
              static_cast<unsigned long long>(kLeast >> 10U));
    ::_exit(kExitFailure);
  }
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*const kBeforeInitializers)() = make_room_for_initializers;

}  // namespace

Status raise_stack_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeast) {
    return {};
  }
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min(limit.rlim_max, kWanted);
  if (limit.rlim_cur < kLeast || ::setrlimit(RLIMIT_STACK, &limit) != 0) {
    return failure(
        fmt::format("the stack may have {} KiB, and {} KiB are needed; raise `ulimit -s`",
                    before >> 10U, kLeast >> 10U));
  }
  set_thread_stacks(limit.rlim_cur);
  return {};
}

}  // namespace train
