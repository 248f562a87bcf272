#pragma once

#include <cstddef>

// Memory of a device that is not there: pages of this process that nobody may touch, except while
// work of the device runs. Who does so all the same is named on stderr and ends with SIGSEGV.
namespace train::test {

/// Zero-filled, 256-byte aligned; nullptr when there is no more. `pinned`: open all the time.
[[nodiscard]] void* guarded_memory(std::size_t size_bytes, bool pinned);
void free_guarded_memory(void* data);

[[nodiscard]] bool is_device_memory(const void* data);
[[nodiscard]] bool is_pinned_memory(const void* data);

/// While one lives, work of the device runs. Safe from any thread, also several at once.
class DeviceWork {
 public:
  DeviceWork();
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
};

/// Names who touches device memory. The first use of the memory does it too; a test program that
/// has handlers of its own calls it in each test. Blocks nothing; the handler before it comes next.
void watch_device_memory();

}  // namespace train::test
