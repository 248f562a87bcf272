#include "tests/support/devices/guarded_memory.hpp"

/// For the emulated NCCL, which is a library and sees nothing else of the program.
extern "C" [[gnu::visibility("default")]] bool memory_of_emulated_device(const void* data) {
  return train::test::is_device_memory(data);
}
