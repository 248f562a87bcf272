// A library to preload: memory, address space or threads that run out at a certain call.
//   ACTORTRAIN_TEST_SCARCE=kind first calls least   from call `first` of this kind on, so many
//                                 `calls` fail; 0: all that follow. Only those of at least `least`
//                                 bytes count. Kinds: memory (malloc and its like, and so `new`),
//                                 maps (mmap), threads (pthread_create)
//   ACTORTRAIN_TEST_SCARCE_AFTER=text   calls count once the program has written this text
//   ACTORTRAIN_TEST_SCARCE_IN=word      only in processes that have this word on their command line
//   ACTORTRAIN_TEST_SCARCE_CALLS=file   the number of calls, at the end of the program
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

extern "C" {
void* __libc_malloc(std::size_t bytes);                     // NOLINT(bugprone-reserved-identifier)
void* __libc_calloc(std::size_t count, std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
void* __libc_realloc(void* memory, std::size_t bytes);      // NOLINT(bugprone-reserved-identifier)
void* __libc_memalign(std::size_t alignment,
                      std::size_t bytes);  // NOLINT(bugprone-reserved-identifier)
}

namespace {

enum class Kind : std::uint8_t { none, memory, maps, threads };

// Constants at the start: memory is asked for before any constructor runs.
std::atomic<bool> counting{false};
std::atomic<std::uint64_t> counted{0};
Kind kind = Kind::none;
std::uint64_t first = 0;
std::uint64_t calls = 0;
std::uint64_t least = 0;
const char* after = nullptr;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// True for a call that has to fail.
bool refused(Kind asked, std::size_t bytes) {
  if (asked != kind || bytes < least || !counting.load(std::memory_order_relaxed)) {
    return false;
  }
  const std::uint64_t call = counted.fetch_add(1, std::memory_order_relaxed) + 1;
  return first > 0 && call >= first && (calls == 0 || call < first + calls);
}

void* no_memory() {
  errno = ENOMEM;
  return nullptr;
}

bool is_on_command_line(const char* word) {
  char words[4096];
  const int file = ::open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  const ssize_t size = ::read(file, words, sizeof words);
  ::close(file);
  return size > 0 && std::string_view(words, static_cast<std::size_t>(size)).find(word) !=
                         std::string_view::npos;
}

[[gnu::constructor]] void read_variables() {
  const char* const text = std::getenv("ACTORTRAIN_TEST_SCARCE");
  const char* const place = std::getenv("ACTORTRAIN_TEST_SCARCE_IN");
  if (text == nullptr || (place != nullptr && !is_on_command_line(place))) {
    return;
  }
  const std::string_view words = text;
  kind = words.starts_with("memory") ? Kind::memory
         : words.starts_with("maps") ? Kind::maps
                                     : Kind::threads;
  char* end = std::strchr(const_cast<char*>(text), ' ');
  first = std::strtoull(end, &end, 10);
  calls = std::strtoull(end, &end, 10);
  least = std::strtoull(end, &end, 10);
  after = std::getenv("ACTORTRAIN_TEST_SCARCE_AFTER");
  counting = after == nullptr;
}

[[gnu::destructor]] void write_count() {
  const char* const path = std::getenv("ACTORTRAIN_TEST_SCARCE_CALLS");
  if (path == nullptr || kind == Kind::none) {
    return;
  }
  counting = false;
  char line[32];
  const int size =
      std::snprintf(line, sizeof line, "%llu\n", static_cast<unsigned long long>(counted.load()));
  const int file = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  [[maybe_unused]] const ssize_t written = ::write(file, line, static_cast<std::size_t>(size));
  ::close(file);
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) {
  return refused(Kind::memory, bytes) ? no_memory() : __libc_malloc(bytes);
}

void* calloc(std::size_t count, std::size_t bytes) {
  return refused(Kind::memory, count * bytes) ? no_memory() : __libc_calloc(count, bytes);
}

void* realloc(void* memory, std::size_t bytes) {
  return bytes > 0 && refused(Kind::memory, bytes) ? no_memory() : __libc_realloc(memory, bytes);
}

void* memalign(std::size_t alignment, std::size_t bytes) {
  return refused(Kind::memory, bytes) ? no_memory() : __libc_memalign(alignment, bytes);
}

void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  void* const given = memalign(alignment, bytes);
  if (given == nullptr) {
    return ENOMEM;
  }
  *memory = given;
  return 0;
}

void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  static auto* const real = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  if (refused(Kind::maps, bytes)) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return real(address, bytes, protection, flags, file, offset);
}

void* mmap64(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  return mmap(address, bytes, protection, flags, file, offset);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  static auto* const real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return refused(Kind::threads, 0) ? EAGAIN : real(thread, attributes, body, argument);
}

ssize_t write(int file, const void* bytes, std::size_t size) {
  static auto* const real = next<ssize_t(int, const void*, std::size_t)>("write");
  if (after != nullptr && !counting &&
      std::string_view(static_cast<const char*>(bytes), size).find(after) !=
          std::string_view::npos) {
    counting = true;
  }
  return real(file, bytes, size);
}

}  // extern "C"
