#pragma once

#include <unistd.h>

#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// Body of a placeholder process for tests. If the test disappears, an alarm ends the process,
/// later than the test would.
[[noreturn]] inline void last_until_killed() {
  ::alarm(static_cast<unsigned>(beyond_hang_limit.count()));
  for (;;) {
    ::pause();
  }
}

}  // namespace train::test
