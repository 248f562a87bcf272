#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/error_output_file.hpp"

namespace train::test {

/// Wait status of a child that calls `work`, and what it logs; exit code 99 if `work` returns.
inline std::pair<int, std::string> end_of_child(const std::function<void()>& work) {
  const TempDirectory home;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const ErrorOutputFile log(home / "log");
    std::signal(SIGABRT, SIG_DFL);  // Not the tests' own handler.
    work();
    ::_exit(99);
  }
  int end = 0;
  REQUIRE(::waitpid(child, &end, 0) == child);
  return {end, read_bytes(home / "log")};
}

}  // namespace train::test
