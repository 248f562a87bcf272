#include "base/process/stack_limit.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>

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
