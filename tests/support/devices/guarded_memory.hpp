#pragma once

#include <cstddef>

// Memory of a simulated device: pages of this process that may be accessed only while work of the
// device runs. Any other access is reported on stderr and ends with SIGSEGV.
namespace train::test {

/// Allocates zero-filled, 256-byte aligned memory; nullptr if exhausted. `pinned`: always
/// accessible. ACTORTRAIN_TEST_DEVICE_USE: a directory, where a file named by the process's id then
/// has the most bytes of the device that were held at a time; nothing is guarded.
[[nodiscard]] void* guarded_memory(std::size_t size_bytes, bool pinned);
void free_guarded_memory(void* data);

[[nodiscard]] bool is_device_memory(const void* data);
[[nodiscard]] bool is_pinned_memory(const void* data);

/// Guard during which work of the device runs. Safe from any thread, also several at once.
class DeviceWork {
 public:
  DeviceWork();
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;
};

/// Reports invalid accesses to device memory. The first use of the memory calls this too; a test
/// program with its own handlers calls it in each test. Does not block; the previous handler runs
/// next.
void watch_device_memory();

}  // namespace train::test
