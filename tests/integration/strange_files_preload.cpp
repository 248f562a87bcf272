// A library to preload: what file systems of clusters do, as its variables say.
//   ACTORTRAIN_TEST_NO_LOCKS      every lock is given to everybody; "refused": none to anybody
//   ACTORTRAIN_TEST_ABSENCE_S=s   a client of NFS believes for s seconds, once it has seen it, that
//                                 control/endpoint is not there
//   ACTORTRAIN_TEST_SYNC_AFTER=f  a slow disk: no shard of a checkpoint is durable while somebody
//   has
//                                 a lock of file f
//   ACTORTRAIN_TEST_BOOT=file     another machine: its boot id is what the file says
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool has_no_locks() { return std::getenv("ACTORTRAIN_TEST_NO_LOCKS") != nullptr; }

/// What a call for a lock returns where there are none.
int answer_without_locks() {
  const bool refused = std::string_view(std::getenv("ACTORTRAIN_TEST_NO_LOCKS")) == "refused";
  errno = ENOSYS;
  return refused ? -1 : 0;
}

double now_s() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// What a client believes of one file.
class Absence {
 public:
  /// It is not asked for at all.
  bool believed(std::string_view path) {
    const std::lock_guard lock(mutex_);
    return is_it(path) && now_s() < until_s_;
  }
  void note(std::string_view path, bool absent) {
    const char* const seconds = std::getenv("ACTORTRAIN_TEST_ABSENCE_S");
    const std::lock_guard lock(mutex_);
    if (seconds != nullptr && is_it(path)) {
      until_s_ = absent ? now_s() + std::atof(seconds) : 0.0;
    }
  }

 private:
  static bool is_it(std::string_view path) { return path.ends_with("/control/endpoint"); }

  std::mutex mutex_;
  double until_s_ = 0.0;
};

Absence& absence() {
  static Absence one;
  return one;
}

template <class Call>
int opened(const char* path, const Call& call) {
  if (absence().believed(path)) {
    errno = ENOENT;
    return -1;
  }
  const int file = call();
  const int error = errno;
  absence().note(path, file < 0 && error == ENOENT);
  errno = error;
  return file;
}

const char* in_place_of(const char* path) {
  const char* const boot = std::getenv("ACTORTRAIN_TEST_BOOT");
  return boot != nullptr && std::string_view(path) == "/proc/sys/kernel/random/boot_id" ? boot
                                                                                        : path;
}

void wait_for_disk(int file) {
  const char* const awaited = std::getenv("ACTORTRAIN_TEST_SYNC_AFTER");
  char path[4096] = {};
  if (awaited != nullptr &&
      readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof(path) - 1) > 0 &&
      std::string_view(path).find(".safetensors") != std::string_view::npos) {
    const int lock = next<int(const char*, int, ...)>("open")(awaited, O_RDONLY | O_CLOEXEC);
    next<int(int, int)>("flock")(lock, LOCK_SH);
    close(lock);
  }
}

}  // namespace

extern "C" {

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  wait_for_disk(file);
  return real(file);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, mode_t);
  va_end(arguments);
  static auto* const real = next<int(const char*, int, ...)>("open");
  return opened(path, [&] { return real(path, flags, mode); });
}

int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, mode_t);
  va_end(arguments);
  static auto* const real = next<int(const char*, int, ...)>("open64");
  return opened(path, [&] { return real(path, flags, mode); });
}

std::FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<std::FILE*(const char*, const char*)>("fopen");
  return real(in_place_of(path), mode);
}

std::FILE* fopen64(const char* path, const char* mode) {
  static auto* const real = next<std::FILE*(const char*, const char*)>("fopen64");
  return real(in_place_of(path), mode);
}

int flock(int file, int operation) {
  static auto* const real = next<int(int, int)>("flock");
  return has_no_locks() ? answer_without_locks() : real(file, operation);
}

int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  static auto* const real = next<int(int, int, ...)>("fcntl");
  const bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;
  return locks && has_no_locks() ? answer_without_locks() : real(file, command, argument);
}

int fcntl64(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  static auto* const real = next<int(int, int, ...)>("fcntl64");
  const bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK;
  return locks && has_no_locks() ? answer_without_locks() : real(file, command, argument);
}

}  // extern "C"
