#include "base/process/stack_limit.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>

#include "base/process/joined_thread.hpp"

namespace train {
namespace {

/// True if a child says so that has these limits of its stack, in KiB.
bool says(rlim_t soft, rlim_t hard, bool (*work)()) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit limit = {.rlim_cur = soft << 10, .rlim_max = hard << 10};
    ::_exit(::setrlimit(RLIMIT_STACK, &limit) == 0 && work() ? 0 : 1);
  }
  int end = 0;
  REQUIRE(::waitpid(child, &end, 0) == child);
  return end == 0;
}

rlim_t soft_limit() {
  rlimit now = {};
  return ::getrlimit(RLIMIT_STACK, &now) == 0 ? now.rlim_cur : 0;
}

std::size_t stack_of_thread() {
  std::size_t bytes = 0;
  JoinedThread([&bytes] {
    pthread_attr_t attributes;
    if (::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
      (void)::pthread_attr_getstacksize(&attributes, &bytes);
      ::pthread_attr_destroy(&attributes);
    }
  }).join();
  return bytes;
}

}  // namespace

TEST_CASE("stack_limit: it is raised where it is too small, with that of threads",
          "[base][stack_limit]") {
  CHECK(says(100, 1024, [] {
    return raise_stack_limit().ok() && soft_limit() == 1024U << 10U &&
           stack_of_thread() == std::size_t{1024} << 10U;
  }));
  CHECK(says(512, 1024, [] { return raise_stack_limit().ok() && soft_limit() == 512U << 10U; }));
}

TEST_CASE("stack_limit: one that cannot be raised is named, and what is needed",
          "[base][stack_limit]") {
  CHECK(says(100, 200, [] {
    const Status raised = raise_stack_limit();
    return !raised.ok() &&
           raised.error().message ==
               "the stack may have 100 KiB, and 256 KiB are needed; raise `ulimit -s`";
  }));
}

}  // namespace train
