#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/processes/leave.hpp"

// Another user of this machine, for tests of shared resources.
namespace train::test {

inline constexpr uid_t kOtherUser = 65534;

/// True if this process can become another user, which only root can. Prints a line if not.
inline bool can_be_another_user() {
  if (::geteuid() == 0) {
    return true;
  }
  WARN("skipped: what another user does, which needs root");
  return false;
}

/// Runs `work` as the other user, in a new process, and returns its result. REQUIRES:
/// can_be_another_user(); `work` only makes system calls.
inline bool as_another_user(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool other = ::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0;
    leave(other && work() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace train::test
