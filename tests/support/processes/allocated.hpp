#pragma once

#include <cstdint>

namespace train::test {

/// What a process has asked operator new for since it began, whether it has freed it or not.
struct Allocated {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

/// Of this process. Zeros under a sanitizer, whose own operator new stays. Usable on any thread.
/// REQUIRES: allocated.cpp is linked into the program, which counts for all of it.
[[nodiscard]] Allocated allocated();

}  // namespace train::test
