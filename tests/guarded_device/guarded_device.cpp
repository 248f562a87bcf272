// A CUDA device that is not there: what a build with CUDA has of one (cuda_device.hpp), with the
// kernels of the CPU on guarded memory. Linked into a program, it takes the place of the library's.
// Kernels are put off until the host waits for them, so that nobody sees a result too early.
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "kernels/all_params.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/cuda_device.hpp"
#include "tests/guarded_device/guarded_device.hpp"
#include "tests/support/devices/guarded_memory.hpp"

namespace train::test {
namespace {

using kernels::KernelTable;
using kernels::Stream;

bool inline_streams = false;

class GuardedStream;

/// Whatever was put off is done by then.
class GuardedPoint final : public kernels::DevicePoint {
 public:
  explicit GuardedPoint(GuardedStream& stream) : stream_(stream) {}
  void record() override;
  [[nodiscard]] bool reached() const override { return true; }
  void wait() const override {}

 private:
  GuardedStream& stream_;
};

class GuardedStream final : public Stream {
 public:
  GuardedStream(std::string name, int threads)
      : kernels_(kernels::make_inline_stream(threads)),
        host_(inline_streams ? kernels::make_inline_stream(threads)
                             : kernels::make_thread_stream(std::move(name), threads)) {}
  ~GuardedStream() override {
    host_->enqueue([this] { work_off(); });
  }

  void enqueue(Work work) override {
    host_->enqueue([this, work = std::move(work)] {
      work_off();
      work();
    });
  }
  void submit(Work work) override { host_->enqueue(std::move(work)); }
  [[nodiscard]] std::shared_ptr<kernels::DevicePoint> make_point() override {
    return std::make_shared<GuardedPoint>(*this);
  }
  void mark(kernels::Mark mark) override { host_->mark(mark); }
  [[nodiscard]] kernels::Mark current(std::int64_t& since_ns) const override {
    return host_->current(since_ns);
  }
  [[nodiscard]] bool waits() const override { return host_->waits(); }
  void synchronize() override {
    host_->enqueue([this] { work_off(); });
    host_->synchronize();
  }
  void on_failure(FailureHandler handler) override { host_->on_failure(std::move(handler)); }
  [[nodiscard]] int threads() const override { return host_->threads(); }

  /// Hands a kernel to the device: `launch` enqueues it on the stream that it is given.
  void launch(std::function<void(Stream&)> launch) {
    submit([this, launch = std::move(launch)] { put_off_.push_back(launch); });
  }
  /// Lets the device do what it has. On the stream's thread.
  void work_off() {
    if (put_off_.empty()) {
      return;
    }
    const DeviceWork work;
    while (!put_off_.empty()) {
      const auto next = std::exchange(put_off_.front(), nullptr);
      put_off_.pop_front();
      next(*kernels_);
    }
    kernels_->synchronize();
  }

 private:
  std::deque<std::function<void(Stream&)>> put_off_;
  std::unique_ptr<Stream> kernels_;  // Runs them, where they are worked off.
  std::unique_ptr<Stream> host_;     // Joined first.
};

void GuardedPoint::record() { stream_.work_off(); }

/// A device reads no memory of the host but pinned memory, and that only to copy it. What looks
/// like an address is one: the other members are sizes, factors and flags.
template <class Params>
void check_words(Params params) {
  static_assert(std::is_trivially_copyable_v<Params>);
  __builtin_clear_padding(&params);
  constexpr std::uintptr_t least = std::uintptr_t{1} << 44;
  constexpr std::uintptr_t end = std::uintptr_t{1} << 47;
  constexpr bool copies = std::is_same_v<Params, kernels::CopyParams>;
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= sizeof(Params);
       at += sizeof(std::uintptr_t)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&params) + at, sizeof(word));
    const auto* data = reinterpret_cast<const void*>(word);
    if (word >= least && word < end && !is_device_memory(data) &&
        !(copies && is_pinned_memory(data))) {
      throw std::logic_error("a kernel of the guarded device was given memory of the host");
    }
  }
}

/// Params that list tensors keep the list in memory of the host, and hand out what it says.
template <class Params>
void check_addresses(const Params& params) {
  if constexpr (std::is_trivially_copyable_v<Params>) {
    check_words(params);
  } else if constexpr (requires { params.tensors; }) {
    std::for_each(params.tensors.begin(), params.tensors.end(),
                  [](const auto& tensor) { check_words(tensor); });
  } else {
    std::for_each(params.sums.begin(), params.sums.end(),
                  [](const auto& sum) { check_words(sum); });
  }
  if constexpr (requires { params.guard; }) {
    check_words(params.guard);
  }
}

template <class Params, void (*KernelTable::*kKernel)(Stream&, const Params&)>
void guarded(Stream& stream, const Params& params) {
  auto* here = dynamic_cast<GuardedStream*>(&stream);
  if (here == nullptr) {
    throw std::logic_error("a kernel of the guarded device needs one of its streams");
  }
  check_addresses(params);
  here->launch([params](Stream& device) { (kernels::cpu_backend().*kKernel)(device, params); });
}

template <class Params>
using Kernel = void (*KernelTable::*)(Stream&, const Params&);

template <class Params>
Params params_of(Kernel<Params>);

template <auto kKernel>
void on_guard(KernelTable& table) {
  table.*kKernel = guarded<decltype(params_of(kKernel)), kKernel>;
}

KernelTable guarded_table() {
  static constexpr kernels::Device device{
      .memory = kernels::MemoryKind::device,
      .staging = kernels::MemoryKind::pinned,
      .offload = kernels::MemoryKind::offloaded,
      .make_stream = [](std::string name, int threads) -> std::unique_ptr<Stream> {
        return std::make_unique<GuardedStream>(std::move(name), threads);
      },
      .copy =
          [](void* to, const void* from, std::size_t size_bytes) {
            if (size_bytes > 0) {
              const DeviceWork work;
              std::memcpy(to, from, size_bytes);
            }
          }};
  KernelTable table{};
  table.name = "guarded";
  table.device = &device;
  table.kernel_set = [] { return "guarded " + kernels::kernel_set(); };
#define TRAIN_KERNEL_ON_GUARD(name, Params) on_guard<&KernelTable::name>(table);
  TRAIN_KERNELS(TRAIN_KERNEL_ON_GUARD)
#undef TRAIN_KERNEL_ON_GUARD
  return table;
}

}  // namespace

void guarded_streams_run_inline(bool on) { inline_streams = on; }

}  // namespace train::test

namespace train::kernels {

const KernelTable* cuda_backend() {
  static const KernelTable table = test::guarded_table();
  return &table;
}

const std::string& cuda_absence() {
  static const std::string none;
  return none;
}

std::unique_ptr<Stream> make_cuda_stream(std::string name, int /*device*/) {
  return cuda_backend()->device->make_stream(std::move(name), 1);
}

void* cuda_memory(MemoryKind kind, std::size_t size_bytes, std::string& reason) {
  void* const data = test::guarded_memory(size_bytes, kind == MemoryKind::pinned);
  reason = data == nullptr ? "the guarded device is full" : "";
  return data;
}

void free_cuda_memory(MemoryKind /*kind*/, void* data) { test::free_guarded_memory(data); }

}  // namespace train::kernels
