#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

// NCCL between processes with one CUDA device each. Defined by nccl_cuda.cpp or, in a build without
// CUDA or nccl.h, by nccl_none.cpp, which has none.
namespace train::kernels {

/// Reason, in one line, why NCCL cannot be used here; empty if it can. The first call searches for
/// the library. Thread-safe.
[[nodiscard]] const std::string& nccl_absence();

/// Rendezvous id that all ranks of a communicator share.
using NcclId = std::array<char, 128>;

/// Creates an id, on one rank for all. Throws DeviceError.
[[nodiscard]] NcclId make_nccl_id();

/// Called repeatedly during a wait; returns a reason to give up, or nothing.
using NcclInterrupt = std::function<std::optional<std::string>()>;

/// Device memory sent to and received from one other rank; length 0: nothing.
struct NcclRange {
  int peer = 0;
  const std::byte* send = nullptr;
  std::size_t send_bytes = 0;
  std::byte* receive = nullptr;
  std::size_t receive_bytes = 0;
};

/// Communicator of one rank, with its own stream on the current device.
///
/// Threading: one thread at a time; every wait ends when `interrupt` says so. After an error only
/// the destructor may be called; it aborts running work and waits for no other rank.
class NcclComm {
 public:
  /// Blocks until all `world_size` ranks have joined. Throws DeviceError.
  NcclComm(const NcclId& id, int rank, int world_size, const NcclInterrupt& interrupt);
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Sends and receives all ranges at once; each peer passes the matching ranges. Blocks until they
  /// have moved. REQUIRES: writes to the memory have finished. Throws DeviceError.
  void exchange(std::span<const NcclRange> ranges, const NcclInterrupt& interrupt);
  /// Copies within the device. Blocks. Throws DeviceError.
  void copy(std::byte* to, const std::byte* from, std::size_t size_bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace train::kernels
