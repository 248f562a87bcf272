#pragma once

#include <unistd.h>

#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// What a process does that a test starts only to have it there. A test that is gone leaves none:
/// an alarm ends it later than the test would.
[[noreturn]] inline void last_until_killed() {
  ::alarm(static_cast<unsigned>(beyond_hang_limit.count()));
  for (;;) {
    ::pause();
  }
}

}  // namespace train::test
