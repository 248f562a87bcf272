#include "base/process/descriptor_limit.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace train {

TEST_CASE("descriptor_limit: it is raised as far as the system lets it",
          "[base][descriptor_limit]") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const rlimit low = {.rlim_cur = 100, .rlim_max = 300};
    rlimit now = {};
    const bool raised = ::setrlimit(RLIMIT_NOFILE, &low) == 0 && raise_descriptor_limit() == 300 &&
                        ::getrlimit(RLIMIT_NOFILE, &now) == 0 && now.rlim_cur == 300;
    ::_exit(raised ? 0 : 1);
  }
  int end = 0;
  REQUIRE(::waitpid(child, &end, 0) == child);
  CHECK(end == 0);
}

}  // namespace train
