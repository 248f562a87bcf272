#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

// NCCL between processes that have a CUDA device each. nccl_cuda.cpp defines this or, in a build
// without CUDA or without nccl.h, nccl_none.cpp, which has none.
namespace train::kernels {

/// Why bytes cannot travel by NCCL here, in one line; empty where they can. Looks for the library
/// when first asked. Thread-safe.
[[nodiscard]] const std::string& nccl_absence();

/// What all ranks of a communicator have to know to find each other.
using NcclId = std::array<char, 128>;

/// A new one, made by one rank for all. Throws DeviceError.
[[nodiscard]] NcclId make_nccl_id();

/// Asked again and again while something is waited for: a reason to give up, or none.
using NcclInterrupt = std::function<std::optional<std::string>()>;

/// Device memory for and from one other rank; a length of 0: nothing.
struct NcclRange {
  int peer = 0;
  const std::byte* send = nullptr;
  std::size_t send_bytes = 0;
  std::byte* receive = nullptr;
  std::size_t receive_bytes = 0;
};

/// A communicator of one rank, with a stream of its own on the current device.
///
/// Threading: one thread at a time; every wait ends when `interrupt` says so. After an error only
/// the destructor may be called, which aborts what is under way and waits for no other rank.
class NcclComm {
 public:
  /// Blocks until all `world_size` ranks have come. Throws DeviceError.
  NcclComm(const NcclId& id, int rank, int world_size, const NcclInterrupt& interrupt);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Sends and receives all ranges at the same time, each as its peer has it. Blocks until they
  /// have moved. REQUIRES: what wrote the memory is done. Throws DeviceError.
  void exchange(std::span<const NcclRange> ranges, const NcclInterrupt& interrupt);
  /// Copies within the device. Blocks. Throws DeviceError.
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace train::kernels
