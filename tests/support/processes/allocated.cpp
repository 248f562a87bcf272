#include "tests/support/processes/allocated.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> count{0};
std::atomic<std::uint64_t> bytes{0};
thread_local bool denied = false;

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The array and nothrow forms call this one.
void* operator new(std::size_t size) {
  count.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(size, std::memory_order_relaxed);
  void* const memory = denied ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
#endif

namespace train::test {

Allocated allocated() { return {.count = count.load(), .bytes = bytes.load()}; }

MemoryDenied::MemoryDenied() { denied = true; }
MemoryDenied::~MemoryDenied() { denied = false; }

}  // namespace train::test
