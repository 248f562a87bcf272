// NCCL as far as the transport uses it, between real processes whose devices are emulated: a
// library libnccl.so.2 of the same ABI, over sockets. What takes time takes it on a thread, so that
// calls return ncclInProgress; a peer that has died is never noticed, as between real devices,
// where only an abort helps. Memory of the device is read and written through /proc/self/mem,
// which the guard on it does not hold back: to the program it is the device's work. Memory of the
// host is refused.
//
// PLAYED_NCCL_VERSION: what ncclGetVersion says. PLAYED_NCCL_STALL="R G": rank R stops for good in
// its G-th group (from 0) of each communicator. PLAYED_NCCL_STALL_ONCE: a file that is made then;
// where it is there already nobody stops.
#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/harness/hang_limit.hpp"

namespace {

constexpr std::size_t kPiece = std::size_t{1} << 16;

/// Device memory on its way; `at` moves on.
struct Range {
  int peer = 0;
  bool sends = false;
  std::uintptr_t at = 0;
  std::size_t left = 0;
  bool is_over = false;  // Its peer has died: nothing moves any more, and nobody notices.
};

int own_memory() {
  static const int file = ::open("/proc/self/mem", O_RDWR | O_CLOEXEC);
  return file;
}

sockaddr_un address_of(const std::string& id, int rank, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = id + "." + std::to_string(rank);
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // Abstract: leaves no file.
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

}  // namespace

struct ncclComm {
  int rank = 0;
  int size = 0;
  std::string id;
  std::vector<int> sockets;  // By rank.
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> aborted{false};
  int abort_event = ::eventfd(0, EFD_CLOEXEC);  // Readable once `aborted` is set.
  std::vector<Range> ranges;                    // Of the group under way.
  int groups = 0;
  std::thread worker;

  ~ncclComm() {
    aborted = true;
    ::eventfd_write(abort_event, 1);
    finish();
    ::close(abort_event);
    for (const int socket : sockets) {
      if (socket >= 0) {
        ::close(socket);
      }
    }
  }
  void finish() {
    if (worker.joinable()) {
      worker.join();
    }
  }
  /// On a thread; success when it has come to its end.
  template <class Work>
  void begin(Work work) {
    finish();
    state = ncclInProgress;
    worker = std::thread([this, work] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
      if (work()) {
        state = ncclSuccess;
      }
    });
  }
  /// Sleeps until one of `ready` is ready for what is asked of it. False: it has been aborted.
  [[nodiscard]] bool wait_for(std::vector<pollfd> ready) const {
    ready.push_back({.fd = abort_event, .events = POLLIN, .revents = 0});
    ::poll(ready.data(), ready.size(), -1);
    return !aborted;
  }

  bool connect_all();
  bool move_all();
  [[nodiscard]] bool stalls() const;
};

bool ncclComm::connect_all() {
  const int door = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = 0;
  sockaddr_un address = address_of(id, rank, length);
  if (::bind(door, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(door, size) != 0) {
    state = ncclSystemError;
    return false;
  }
  sockets.assign(static_cast<std::size_t>(size), -1);
  for (int peer = 0; peer < rank; ++peer) {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address = address_of(id, peer, length);
    while (::connect(socket, reinterpret_cast<sockaddr*>(&address), length) != 0) {
      if (aborted) {
        return false;
      }
      train::test::before_the_next_look();  // The peer may not have begun to listen.
    }
    sockets[static_cast<std::size_t>(peer)] = socket;
    if (::send(socket, &rank, sizeof(rank), MSG_NOSIGNAL) != sizeof(rank)) {
      return false;
    }
  }
  for (int missing = size - rank - 1; missing > 0;) {
    const int socket = ::accept4(door, nullptr, nullptr, SOCK_CLOEXEC);
    int peer = -1;
    if (socket >= 0 && ::recv(socket, &peer, sizeof(peer), MSG_WAITALL) == sizeof(peer)) {
      sockets.at(static_cast<std::size_t>(peer)) = socket;
      --missing;
    } else if (!wait_for({{.fd = door, .events = POLLIN, .revents = 0}})) {
      return false;
    }
  }
  ::close(door);
  return true;
}

bool ncclComm::stalls() const {
  int who = -1;
  int when = -1;
  const char* stall = std::getenv("PLAYED_NCCL_STALL");
  const char* once = std::getenv("PLAYED_NCCL_STALL_ONCE");
  if (stall == nullptr || std::sscanf(stall, "%d %d", &who, &when) != 2 || who != rank ||
      when != groups) {
    return false;
  }
  const int file = once == nullptr ? -1 : ::open(once, O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file >= 0) {
    ::close(file);
  }
  return once == nullptr || file >= 0;
}

namespace {

/// One piece, if the socket takes or has one. False: neither.
bool move_piece(Range& range, int socket) {
  std::array<char, kPiece> piece;
  const std::size_t most = std::min(range.left, piece.size());
  ssize_t moved = -1;
  if (range.sends) {
    if (::pread(own_memory(), piece.data(), most, static_cast<off_t>(range.at)) !=
        static_cast<ssize_t>(most)) {
      ::abort();
    }
    moved = ::send(socket, piece.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT);
  } else {
    moved = ::recv(socket, piece.data(), most, MSG_DONTWAIT);
    if (moved > 0 && ::pwrite(own_memory(), piece.data(), static_cast<std::size_t>(moved),
                              static_cast<off_t>(range.at)) != moved) {
      ::abort();
    }
  }
  if (moved <= 0) {
    range.is_over = moved == 0 || (errno != EAGAIN && errno != EINTR);
    return false;
  }
  range.at += static_cast<std::uintptr_t>(moved);
  range.left -= static_cast<std::size_t>(moved);
  return true;
}

thread_local ncclComm* of_group = nullptr;

/// The program says what memory its device has (device_memory.cpp).
bool is_of_device(std::uintptr_t at) {
  using Ask = bool (*)(const void*);
  static const auto ask = reinterpret_cast<Ask>(::dlsym(RTLD_DEFAULT, "memory_of_emulated_device"));
  return ask != nullptr && ask(reinterpret_cast<const void*>(at));
}

ncclResult_t add(ncclComm_t comm, Range range) {
  if (!is_of_device(range.at) || !is_of_device(range.at + range.left - 1)) {
    return ncclInvalidArgument;
  }
  of_group = comm;
  comm->ranges.push_back(range);
  return ncclSuccess;
}

}  // namespace

bool ncclComm::move_all() {
  if (stalls()) {
    while (wait_for({})) {
    }
    return false;
  }
  for (;;) {
    bool moved = false;
    bool left = false;
    std::vector<pollfd> ready;
    for (Range& range : ranges) {
      const int socket = sockets[static_cast<std::size_t>(range.peer)];
      moved = (range.left > 0 && !range.is_over && move_piece(range, socket)) || moved;
      left = left || range.left > 0;
      if (range.left > 0 && !range.is_over) {
        const short awaited = range.sends ? POLLOUT : POLLIN;
        ready.push_back({.fd = socket, .events = awaited, .revents = 0});
      }
    }
    if (!left) {
      ranges.clear();
      ++groups;
      return true;
    }
    if (!moved && !wait_for(std::move(ready))) {
      return false;
    }
  }
}

ncclResult_t ncclGetVersion(int* version) {
  const char* said = std::getenv("PLAYED_NCCL_VERSION");
  *version = said == nullptr ? NCCL_VERSION_CODE : std::atoi(said);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::snprintf(id->internal, sizeof(id->internal), "emulated-nccl-%d-%d-%llx", ::getpid(), made++,
                static_cast<unsigned long long>(now));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || config->magic != 0xcafebeef) {
    return ncclInvalidArgument;
  }
  auto* made = new ncclComm{};
  made->rank = rank;
  made->size = size;
  made->id = id.internal;
  made->begin([made] { return made->connect_all(); });
  *comm = made;
  return ncclInProgress;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSystemError ? "a system call failed" : "a emulated error";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return ""; }

ncclResult_t ncclGroupStart() {
  of_group = nullptr;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (ncclComm* comm = std::exchange(of_group, nullptr); comm != nullptr) {
    comm->begin([comm] { return comm->move_all(); });
    return ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t /*stream*/) {
  return type != ncclInt8 ? ncclInvalidArgument
                          : add(comm, {peer, true, reinterpret_cast<std::uintptr_t>(data), count});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t /*stream*/) {
  return type != ncclInt8 ? ncclInvalidArgument
                          : add(comm, {peer, false, reinterpret_cast<std::uintptr_t>(data), count});
}
