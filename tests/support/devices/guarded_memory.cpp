#include "tests/support/devices/guarded_memory.hpp"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

namespace train::test {
namespace {

constexpr std::size_t kReserved = std::size_t{4} << 30;
constexpr std::size_t kPage = 4096;

/// Addresses assigned in ascending order, and reused once none is in use.
class Arena {
 public:
  Arena()
      : base_(static_cast<std::byte*>(::mmap(
            nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}

  [[nodiscard]] bool holds(const void* data) const {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    const auto begin = reinterpret_cast<std::uintptr_t>(base_);
    return at >= begin && at < begin + kReserved;
  }
  void* take(std::size_t size_bytes, bool open) {
    const std::size_t size = (size_bytes + kPage - 1) / kPage * kPage;
    if (base_ == MAP_FAILED || size > kReserved - used_) {
      return nullptr;
    }
    std::byte* const data = base_ + used_;
    used_ += size;
    pieces_[data] = size;
    held_ += size;
    if (open && ::mprotect(data, size, PROT_READ | PROT_WRITE) != 0) {
      return nullptr;
    }
    return data;
  }
  void give_back(std::byte* data) {
    const auto piece = pieces_.find(data);
    ::madvise(data, piece->second, MADV_DONTNEED);
    held_ -= piece->second;
    pieces_.erase(piece);
    if (pieces_.empty()) {
      ::mprotect(base_, used_, PROT_NONE);
      used_ = 0;
    }
  }
  [[nodiscard]] std::size_t held() const { return held_; }
  void open(bool on) {
    if (used_ > 0 && ::mprotect(base_, used_, on ? PROT_READ | PROT_WRITE : PROT_NONE) != 0) {
      ::abort();
    }
  }

 private:
  std::byte* base_;
  std::size_t used_ = 0;
  std::size_t held_ = 0;
  std::map<std::byte*, std::size_t> pieces_;
};

struct Guard {
  std::mutex mutex;
  Arena device, pinned;
  // Where bytes are counted nothing is guarded: to guard costs more than all else where a test that
  // counts holds many pages.
  const char* const count_in = std::getenv("ACTORTRAIN_TEST_DEVICE_USE");
  int working = count_in != nullptr ? 1 : 0;  // Device work under way, in pieces.
  std::size_t most = 0;                       // Bytes of the device held at a time.
  struct sigaction before {};
};

Guard& guard() {
  static Guard one;
  return one;
}

void say(const char* text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Limited to calls that are safe in a signal handler after a first call outside it.
void named(int /*signal*/, siginfo_t* info, void* /*context*/) {
  if (guard().device.holds(info->si_addr)) {
    say("guarded device: the host has touched memory of the device outside of its work:\n");
    std::array<void*, 24> frames{};
    ::backtrace_symbols_fd(frames.data(), ::backtrace(frames.data(), frames.size()), STDERR_FILENO);
  }
  ::sigaction(SIGSEGV, &guard().before, nullptr);  // The access repeats, under that handler.
}

/// Leaves the most bytes of the device in a file of this process, where a test wants to know.
void note_held(Guard& one) {
  if (one.count_in != nullptr && one.device.held() > one.most) {
    one.most = one.device.held();
    std::ofstream(std::string(one.count_in) + '/' + std::to_string(::getpid())) << one.most;
  }
}

}  // namespace

void watch_device_memory() {
  std::array<void*, 1> frame{};
  ::backtrace(frame.data(), 1);  // Loads the handler's dependencies.
  struct sigaction action {};
  action.sa_sigaction = named;
  action.sa_flags = SA_SIGINFO;
  struct sigaction before {};
  ::sigaction(SIGSEGV, &action, &before);
  const bool own = (before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction == named;
  if (!own) {
    guard().before = before;
  }
}

void* guarded_memory(std::size_t size_bytes, bool pinned) {
  static const bool watched = (watch_device_memory(), true);
  Guard& one = guard();
  const std::lock_guard lock(one.mutex);
  if (watched && pinned) {
    return one.pinned.take(size_bytes, true);
  }
  void* const data = one.device.take(size_bytes, one.working > 0);
  note_held(one);
  return data;
}

void free_guarded_memory(void* data) {
  Guard& one = guard();
  const std::lock_guard lock(one.mutex);
  if (data != nullptr) {
    (one.device.holds(data) ? one.device : one.pinned).give_back(static_cast<std::byte*>(data));
  }
}

bool is_device_memory(const void* data) { return guard().device.holds(data); }
bool is_pinned_memory(const void* data) { return guard().pinned.holds(data); }

DeviceWork::DeviceWork() {
  Guard& one = guard();
  const std::lock_guard lock(one.mutex);
  if (one.working++ == 0) {
    one.device.open(true);
  }
}

DeviceWork::~DeviceWork() {
  Guard& one = guard();
  const std::lock_guard lock(one.mutex);
  if (--one.working == 0) {
    one.device.open(false);
  }
}

}  // namespace train::test
