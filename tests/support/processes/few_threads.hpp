#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <system_error>

#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/sanitized.hpp"

namespace train::test {

/// Leaves this process address space for the stacks of a few threads.
inline bool leave_room_for_few_threads() {
  unsigned long long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    const bool found = std::fscanf(file, "%llu", &pages) == 1;
    std::fclose(file);
    pages = found ? pages : 0;
  }
  const rlim_t room = rlim_t{40} << 20;
  const rlim_t most = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + room;
  const rlimit limit = {.rlim_cur = most, .rlim_max = most};
  return pages > 0 && ::setrlimit(RLIMIT_AS, &limit) == 0;
}

/// True if `work`, in a child process that can start few threads, throws std::system_error and all
/// threads that it has started have ended: a child that waits for one is killed.
template <class Work>
bool gives_up_without_threads(const Work& work) {
  if (sanitized()) {
    WARN("skipped: a sanitizer takes all address space");
    return true;
  }
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(static_cast<unsigned>(hang_limit.count()));
    int exit_code = leave_room_for_few_threads() ? 1 : 2;
    try {
      work();
    } catch (const std::system_error&) {
      exit_code -= 1;
    }
    ::_exit(exit_code);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace train::test
