#pragma once

#include <cstdint>

namespace train::test {

/// Total requests to operator new since the start of a process, whether freed or not.
struct Allocated {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

/// Counts of this process. Zeros under a sanitizer, which keeps its own operator new. Usable on any
/// thread. REQUIRES: allocated.cpp is linked into the program, all of which it counts.
[[nodiscard]] Allocated allocated();

/// While it lives, operator new throws std::bad_alloc on its thread. Does nothing under a
/// sanitizer. REQUIRES: as allocated().
class MemoryDenied {
 public:
  MemoryDenied();
  ~MemoryDenied();
  MemoryDenied(const MemoryDenied&) = delete;
  MemoryDenied& operator=(const MemoryDenied&) = delete;
};

}  // namespace train::test
