#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "kernels/device/cuda_device.hpp"
#include "kernels/device/device_gate.hpp"
#include "kernels/device/nccl.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {
namespace {

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

/// Functions of the library, looked up on first use: the program starts without it.
struct Nccl {
  CudaLibrary library{"libnccl.so.2", "NCCL"};
  decltype(&ncclGetVersion) version = library["ncclGetVersion"];
  decltype(&ncclGetUniqueId) unique_id = library["ncclGetUniqueId"];
  decltype(&ncclCommInitRankConfig) init = library["ncclCommInitRankConfig"];
  decltype(&ncclCommAbort) abort = library["ncclCommAbort"];
  decltype(&ncclCommGetAsyncError) state = library["ncclCommGetAsyncError"];
  decltype(&ncclGetErrorString) error_string = library["ncclGetErrorString"];
  decltype(&ncclGetLastError) last_error = library["ncclGetLastError"];
  decltype(&ncclGroupStart) group_start = library["ncclGroupStart"];
  decltype(&ncclGroupEnd) group_end = library["ncclGroupEnd"];
  decltype(&ncclSend) send = library["ncclSend"];
  decltype(&ncclRecv) receive = library["ncclRecv"];
};

const Nccl& nccl() {
  static const Nccl table;
  return table;
}

/// Version of the loaded library, which limits the functions used.
int library_version() {
  int version = 0;
  if (nccl().version(&version) != ncclSuccess) {
    throw DeviceError("NCCL: it does not say its version");
  }
  return version;
}

std::string absence() {
  constexpr int oldest = 21800;  // Oldest version with reliable non-blocking communicators.
  try {
    const int version = library_version();
    return version >= oldest ? std::string()
                             : fmt::format("NCCL: version {}.{} is too old, 2.18 is needed",
                                           version / 10000, version / 100 % 100);
  } catch (const DeviceError& error) {
    return error.what();
  }
}

/// Waits by polling: most waits end within microseconds.
template <class Done>
void wait_until(const Done& done, const NcclInterrupt& interrupt) {
  using Clock = std::chrono::steady_clock;
  constexpr auto eager = std::chrono::milliseconds(1);
  const auto begin = Clock::now();
  while (!done()) {
    if (const auto reason = interrupt()) {
      throw DeviceError(*reason);
    }
    if (Clock::now() - begin < eager) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace

const std::string& nccl_absence() {
  static const std::string text = absence();
  return text;
}

NcclId make_nccl_id() {
  ncclUniqueId made;
  if (const ncclResult_t result = nccl().unique_id(&made); result != ncclSuccess) {
    throw DeviceError(fmt::format("NCCL: ncclGetUniqueId: {}", nccl().error_string(result)));
  }
  NcclId id;
  std::copy(std::begin(made.internal), std::end(made.internal), id.begin());
  return id;
}

struct NcclComm::State {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t moved = nullptr;

  ~State() {
    if (comm != nullptr) {
      nccl().abort(comm);
    }
    if (moved != nullptr) {
      cudaEventDestroy(moved);
    }
    if (stream != nullptr) {
      cudaStreamDestroy(stream);
    }
  }

  void check(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) {
      return;
    }
    const char* detail = nccl().last_error(comm);
    throw DeviceError(fmt::format("NCCL: {}: {}{}{}", what, nccl().error_string(result),
                                  detail == nullptr || *detail == '\0' ? "" : ": ",
                                  detail == nullptr ? "" : detail));
  }
  /// Completes a call that returned while still in progress.
  void finalize(const char* what, const NcclInterrupt& interrupt) const {
    wait_until(
        [&] {
          ncclResult_t state = ncclInProgress;
          check(nccl().state(comm, &state), "ncclCommGetAsyncError");
          check(state, what);
          return state == ncclSuccess;
        },
        interrupt);
  }
};

NcclComm::NcclComm(const NcclId& id, int rank, int world_size, const NcclInterrupt& interrupt)
    : state_(std::make_unique<State>()) {
  TRAIN_CUDA_CHECK(cudaStreamCreateWithFlags(&state_->stream, cudaStreamNonBlocking));
  TRAIN_CUDA_CHECK(cudaEventCreateWithFlags(&state_->moved, cudaEventDisableTiming));
  ncclUniqueId shared;
  std::copy(id.begin(), id.end(), std::begin(shared.internal));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.version = std::min(config.version, static_cast<unsigned>(library_version()));
  config.blocking = 0;
  state_->check(nccl().init(&state_->comm, world_size, shared, rank, &config),
                "ncclCommInitRankConfig");
  state_->finalize("ncclCommInitRankConfig", interrupt);
}

NcclComm::~NcclComm() = default;

void NcclComm::exchange(std::span<const NcclRange> ranges, const NcclInterrupt& interrupt) {
  const State& state = *state_;
  const DeviceGate::Exchange under_way;
  state.check(nccl().group_start(), "ncclGroupStart");
  for (const NcclRange& range : ranges) {
    if (range.send_bytes > 0) {
      state.check(
          nccl().send(range.send, range.send_bytes, ncclInt8, range.peer, state.comm, state.stream),
          "ncclSend");
    }
    if (range.receive_bytes > 0) {
      state.check(nccl().receive(range.receive, range.receive_bytes, ncclInt8, range.peer,
                                 state.comm, state.stream),
                  "ncclRecv");
    }
  }
  state.check(nccl().group_end(), "ncclGroupEnd");
  state.finalize("ncclGroupEnd", interrupt);
  TRAIN_CUDA_CHECK(cudaEventRecord(state.moved, state.stream));
  wait_until(
      [&] {
        ncclResult_t failed = ncclSuccess;
        state.check(nccl().state(state.comm, &failed), "ncclCommGetAsyncError");
        state.check(failed, "on the device");
        const cudaError_t reached = cudaEventQuery(state.moved);
        if (reached != cudaErrorNotReady) {
          TRAIN_CUDA_CHECK(reached);
        }
        return reached == cudaSuccess;
      },
      interrupt);
}

void NcclComm::copy(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  TRAIN_CUDA_CHECK(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, state_->stream));
  TRAIN_CUDA_CHECK(cudaStreamSynchronize(state_->stream));
}

}  // namespace train::kernels
