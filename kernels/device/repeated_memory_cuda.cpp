#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <utility>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/repeated_memory.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {
namespace {

/// Driver functions for memory that is mapped to chosen addresses.
struct Driver {
  CudaLibrary library{"libcuda.so.1", "memory that repeats"};
  decltype(&cuMemGetAllocationGranularity) granularity = library["cuMemGetAllocationGranularity"];
  decltype(&cuMemAddressReserve) reserve = library["cuMemAddressReserve"];
  decltype(&cuMemAddressFree) free_addresses = library["cuMemAddressFree"];
  decltype(&cuMemCreate) create = library["cuMemCreate"];
  decltype(&cuMemRelease) release = library["cuMemRelease"];
  decltype(&cuMemMap) map = library["cuMemMap"];
  decltype(&cuMemUnmap) unmap = library["cuMemUnmap"];
  decltype(&cuMemSetAccess) allow = library["cuMemSetAccess"];
};

/// nullptr if the driver is too old.
const Driver* driver() {
  static const std::unique_ptr<const Driver> found = [] {
    try {
      return std::make_unique<const Driver>();
    } catch (const DeviceError&) {
      return std::unique_ptr<const Driver>();  // Memory is then allocated at full length.
    }
  }();
  return found.get();
}

class PlainMemory final : public RepeatedMemory {
 public:
  PlainMemory(void* data, std::size_t size_bytes) : RepeatedMemory(data, size_bytes) {}
  ~PlainMemory() override { cudaFree(data()); }
};

std::unique_ptr<RepeatedMemory> plain_memory(std::size_t size_bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, size_bytes) != cudaSuccess) {
    cudaGetLastError();  // Clears the error, which the next call would report.
    return nullptr;
  }
  return std::make_unique<PlainMemory>(data, size_bytes);
}

/// Reserved addresses, and how many pieces are mapped from the first on; the destructor undoes
/// both.
struct Addresses {
  const Driver* driver = nullptr;
  CUdeviceptr begin = 0;
  std::size_t size_bytes = 0;
  std::size_t mapped_bytes = 0;

  explicit Addresses(const Driver& of) : driver(&of) {}
  Addresses(Addresses&& other) noexcept
      : driver(other.driver),
        begin(std::exchange(other.begin, 0)),
        size_bytes(other.size_bytes),
        mapped_bytes(std::exchange(other.mapped_bytes, 0)) {}
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  // Errors of these calls can only repeat a failure of the device that its user already knows.
  ~Addresses() {
    if (mapped_bytes > 0) {
      driver->unmap(begin, mapped_bytes);
    }
    if (begin != 0) {
      driver->free_addresses(begin, size_bytes);
    }
  }

  /// Maps `piece` repeatedly, from the first address to the last.
  [[nodiscard]] bool map(CUmemGenericAllocationHandle piece, std::size_t piece_bytes,
                         const CUmemLocation& device) {
    while (mapped_bytes < size_bytes) {
      if (driver->map(begin + mapped_bytes, piece_bytes, 0, piece, 0) != CUDA_SUCCESS) {
        return false;
      }
      mapped_bytes += piece_bytes;
    }
    CUmemAccessDesc access{};
    access.location = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver->allow(begin, size_bytes, &access, 1) == CUDA_SUCCESS;
  }
};

class MappedMemory final : public RepeatedMemory {
 public:
  MappedMemory(Addresses addresses, std::size_t piece_bytes)
      : RepeatedMemory(reinterpret_cast<void*>(addresses.begin), piece_bytes),
        addresses_(std::move(addresses)) {}

 private:
  Addresses addresses_;
};

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

std::unique_ptr<RepeatedMemory> mapped_memory(const Driver& driver, std::size_t size_bytes,
                                              std::size_t piece_bytes) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t page_bytes = 0;
  if (cudaGetDevice(&kind.location.id) != cudaSuccess ||
      driver.granularity(&page_bytes, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS) {
    return nullptr;
  }
  const std::size_t once_bytes = rounded_up(piece_bytes, page_bytes);
  Addresses addresses(driver);
  addresses.size_bytes = rounded_up(size_bytes, once_bytes);
  CUmemGenericAllocationHandle piece = 0;
  if (driver.reserve(&addresses.begin, addresses.size_bytes, 0, 0, 0) != CUDA_SUCCESS) {
    addresses.begin = 0;
    return nullptr;
  }
  if (driver.create(&piece, once_bytes, &kind, 0) != CUDA_SUCCESS) {
    return nullptr;
  }
  const bool mapped = addresses.map(piece, once_bytes, kind.location);
  driver.release(piece);  // The memory lives as long as it is mapped.
  return mapped ? std::make_unique<MappedMemory>(std::move(addresses), once_bytes) : nullptr;
}

}  // namespace

std::unique_ptr<RepeatedMemory> RepeatedMemory::make(std::size_t size_bytes,
                                                     std::size_t piece_bytes) {
  if (size_bytes > piece_bytes && driver() != nullptr) {
    if (auto mapped = mapped_memory(*driver(), size_bytes, piece_bytes)) {
      return mapped;
    }
  }
  return plain_memory(size_bytes);
}

}  // namespace train::kernels
