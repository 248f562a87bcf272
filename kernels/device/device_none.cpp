#include <utility>

#include "kernels/backend.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/repeated_memory.hpp"

namespace train::kernels {

const std::string& cuda_absence() {
  static const std::string absence =
      "this build has no CUDA (`./dev build gpu` makes one that has, where there is a CUDA "
      "toolkit)";
  return absence;
}

std::unique_ptr<Stream> make_cuda_stream(std::string name, int /*device*/) {
  throw DeviceError("stream '" + std::move(name) + "': " + cuda_absence());
}

void* cuda_memory(MemoryKind /*kind*/, std::size_t /*size_bytes*/, std::string& reason) {
  reason = cuda_absence();
  return nullptr;
}

std::unique_ptr<RepeatedMemory> RepeatedMemory::make(std::size_t /*size_bytes*/,
                                                     std::size_t /*piece_bytes*/) {
  return nullptr;
}

void free_cuda_memory(MemoryKind /*kind*/, void* /*data*/) {}

const KernelTable* cuda_backend() { return nullptr; }

}  // namespace train::kernels
