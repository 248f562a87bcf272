#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

// Another user of this machine, for tests of what is shared with them.
namespace train::test {

inline constexpr uid_t kOtherUser = 65534;

/// Whether this process can become another user: root alone can. Says so where it cannot.
inline bool can_be_another_user() {
  if (::geteuid() == 0) {
    return true;
  }
  WARN("not root: nothing can be done in another user's name");
  return false;
}

/// Does `work` as the other user, in a process of its own, and returns what it returns.
/// REQUIRES: can_be_another_user(); `work` makes system calls alone.
inline bool as_another_user(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool other = ::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0;
    ::_exit(other && work() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace train::test
