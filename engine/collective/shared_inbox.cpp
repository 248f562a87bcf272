#include "engine/collective/shared_inbox.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.hpp"
#include "engine/collective/channel.hpp"

namespace train::engine {
namespace {

constexpr std::size_t kMarkBytes = 64;
// Sealed against shrinking by any process, so that no access to a mapping can fail.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Zeroed memory is an inbox without messages, and atomics mean the same in every process.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

std::size_t bytes_of_channel(int world_size) {
  return sizeof(InboxWakeup) + static_cast<std::size_t>(world_size) * sizeof(InboxDrawer);
}

std::size_t bytes_of_inbox(int world_size) {
  return kMarkBytes + kChannelCount * bytes_of_channel(world_size);
}

/// A futex word that processes share.
class FutexWord {
 public:
  explicit FutexWord(std::atomic<std::uint32_t>& word, const timespec* limit = nullptr)
      : word_(&word), limit_(limit) {}

  [[nodiscard]] std::uint32_t load() const { return word_->load(); }
  std::uint32_t fetch_add(std::uint32_t n) { return word_->fetch_add(n); }
  bool compare_exchange(std::uint32_t expected, std::uint32_t desired) {
    return word_->compare_exchange_strong(expected, desired);
  }
  /// Also ends for a signal, or because the word is not `value` any more.
  [[nodiscard]] bool wait(std::uint32_t value) {
    return futex(FUTEX_WAIT, value) == 0 || errno != ETIMEDOUT;
  }
  void wake() { futex(FUTEX_WAKE, INT_MAX); }

 private:
  /// Between processes: not the private kind.
  long futex(int operation, std::uint32_t value) {
    return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word_), operation, value, limit_,
                     nullptr, 0);
  }

  std::atomic<std::uint32_t>* word_;
  const timespec* limit_;
};

void ring(InboxWakeup& shared) {
  FutexWord word(shared.word);
  wakeup::ring(word);
}

}  // namespace

InboxMemory::InboxMemory(int descriptor, void* start, std::size_t bytes, int world_size)
    : descriptor_(descriptor),
      start_(static_cast<std::byte*>(start)),
      bytes_(bytes),
      world_size_(world_size) {}

InboxMemory::~InboxMemory() {
  ::munmap(start_, bytes_);
  close_descriptor();
}

void InboxMemory::close_descriptor() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
    descriptor_ = -1;
  }
}

std::shared_ptr<InboxMemory> InboxMemory::map(int descriptor, int world_size) {
  const std::size_t bytes = bytes_of_inbox(world_size);
  void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (start == MAP_FAILED) {
    ::close(descriptor);
    return nullptr;
  }
  return std::shared_ptr<InboxMemory>(new InboxMemory(descriptor, start, bytes, world_size));
}

std::shared_ptr<InboxMemory> InboxMemory::make(int world_size, std::uint64_t mark) {
  const int descriptor = ::memfd_create("actortrain-inbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) {
    return nullptr;
  }
  if (::ftruncate(descriptor, static_cast<off_t>(bytes_of_inbox(world_size))) != 0 ||
      ::fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
    ::close(descriptor);
    return nullptr;
  }
  std::shared_ptr<InboxMemory> memory = map(descriptor, world_size);
  if (memory) {
    memory->mark().store(mark);
  }
  return memory;
}

std::shared_ptr<InboxMemory> InboxMemory::of(pid_t process, int descriptor, int world_size,
                                             std::uint64_t mark) {
  const std::string path = fmt::format("/proc/{}/fd/{}", process, descriptor);
  const int own = descriptor < 0 ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (own < 0) {
    return nullptr;
  }
  struct stat found = {};
  if (::fcntl(own, F_GET_SEALS) != kSeals || ::fstat(own, &found) != 0 ||
      found.st_size != static_cast<off_t>(bytes_of_inbox(world_size))) {
    ::close(own);
    return nullptr;
  }
  std::shared_ptr<InboxMemory> memory = map(own, world_size);
  if (!memory || memory->mark().load() != mark) {
    return nullptr;
  }
  memory->close_descriptor();
  return memory;
}

std::atomic<std::uint64_t>& InboxMemory::mark() const {
  return *reinterpret_cast<std::atomic<std::uint64_t>*>(start_);
}

InboxWakeup& InboxMemory::wakeup(std::size_t channel) const {
  std::byte* place = start_ + kMarkBytes + channel * bytes_of_channel(world_size_);
  return *std::launder(reinterpret_cast<InboxWakeup*>(place));
}

InboxDrawer& InboxMemory::drawer(std::size_t channel, int peer) const {
  std::byte* first = reinterpret_cast<std::byte*>(&wakeup(channel)) + sizeof(InboxWakeup);
  std::byte* place = first + static_cast<std::size_t>(peer) * sizeof(InboxDrawer);
  return *std::launder(reinterpret_cast<InboxDrawer*>(place));
}

SharedInbox::SharedInbox(int rank, std::size_t channel, std::shared_ptr<InboxMemory> own,
                         std::vector<std::shared_ptr<InboxMemory>> peers)
    : rank_(rank), channel_(channel), own_(std::move(own)), peers_(std::move(peers)) {
  TRAIN_CHECK(own_ != nullptr, "rank {} without an inbox", rank);
}

InboxDrawer& SharedInbox::at_peer(int peer) const {
  return peers_[static_cast<std::size_t>(peer)]->drawer(channel_, rank_);
}

const std::atomic<std::uint64_t>& SharedInbox::ticket_of(int peer) const {
  return peers_[static_cast<std::size_t>(peer)]->wakeup(channel_).ticket;
}

void SharedInbox::send(int peer, std::uint64_t number, std::span<const std::byte> header,
                       std::span<const std::byte> small) {
  TRAIN_CHECK(header.size() + small.size() <= kInboxMessageBytes, "{} and {} bytes", header.size(),
              small.size());
  InboxDrawer::Message& message = at_peer(peer).messages[number % 2];
  std::copy(header.begin(), header.end(), message.bytes.begin());
  if (!small.empty()) {
    std::memcpy(message.bytes.data() + header.size(), small.data(), small.size());
  }
  message.number.store(number, std::memory_order_release);
  ring(peers_[static_cast<std::size_t>(peer)]->wakeup(channel_));
}

const std::byte* SharedInbox::message(int peer, std::uint64_t number) const {
  const InboxDrawer::Message& message = own_drawer(peer).messages[number % 2];
  return message.number.load(std::memory_order_acquire) == number ? message.bytes.data() : nullptr;
}

void SharedInbox::say_taken(int peer, std::uint64_t number) {
  at_peer(peer).taken.store(number, std::memory_order_release);
  ring(peers_[static_cast<std::size_t>(peer)]->wakeup(channel_));
}

bool SharedInbox::taken(int peer, std::uint64_t number) const {
  return own_drawer(peer).taken.load(std::memory_order_acquire) == number;
}

std::uint32_t SharedInbox::rings() const {
  return wakeup::rings(FutexWord(own_->wakeup(channel_).word));
}

bool SharedInbox::sleep(std::uint32_t seen, Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
  if (left <= 0) {
    return false;
  }
  const timespec limit = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
  FutexWord word(own_->wakeup(channel_).word, &limit);
  return wakeup::sleep(word, seen);
}

void SharedInbox::ring_own() { ring(own_->wakeup(channel_)); }

}  // namespace train::engine
