#include "storage/files/file_calls.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>

namespace train::storage {
namespace {

namespace fs = std::filesystem;

std::atomic<FileCallHook*> installed{nullptr};

/// Runs `make(call)` between the hook's before() and after(), if there is a hook.
template <class Make>
auto pass(FileCall call, const Make& make) -> decltype(make(call)) {
  FileCallHook* const hook = installed.load(std::memory_order_acquire);
  if (hook == nullptr) [[likely]] {
    return make(call);
  }
  if (const int refused = hook->before(call); refused != 0) {
    errno = refused;
    return -1;
  }
  const auto result = make(call);
  const int error_number = result < 0 ? errno : 0;
  if (call.kind == FileCallKind::write) {
    call.bytes = call.bytes.first(result < 0 ? 0 : static_cast<std::size_t>(result));
  }
  hook->after(call, error_number);
  errno = error_number;
  return result;
}

/// Runs `make(size_bytes)` if the hook allows it, with as many bytes as it leaves.
template <class Make>
auto pass_read(FileRead read, const Make& make) -> decltype(make(std::size_t{0})) {
  FileCallHook* const hook = installed.load(std::memory_order_acquire);
  if (hook != nullptr) [[unlikely]] {
    if (const int refused = hook->before_read(read); refused != 0) {
      errno = refused;
      return -1;
    }
  }
  return make(static_cast<std::size_t>(read.size_bytes));
}

template <class Call>
int until_not_interrupted(const Call& call) {
  int result = -1;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

std::string_view text(const fs::path& path) { return path.native(); }

/// `write` writes some of the remaining bytes.
int write_all(std::span<const std::byte> bytes,
              const std::function<ssize_t(std::span<const std::byte>)>& write) {
  while (!bytes.empty()) {
    const ssize_t written = write(bytes);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      errno = written == 0 ? EIO : errno;  // No file system writes nothing without an error.
      return -1;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

std::string_view name_of(FileCallKind kind) {
  static constexpr std::array<std::string_view, 11> names = {
      "open",           "write",  "truncate",         "sync", "close", "rename", "make_directory",
      "sync_directory", "unlink", "remove_directory", "point"};
  return names[static_cast<std::size_t>(kind)];
}

FileCallHook* install_file_call_hook(FileCallHook* hook) {
  return installed.exchange(hook, std::memory_order_acq_rel);
}

bool hook_sees_index() {
  const FileCallHook* const hook = installed.load(std::memory_order_acquire);
  return hook != nullptr && hook->sees_index();
}

int ask_hook(FileCall& call) {
  FileCallHook* const hook = installed.load(std::memory_order_acquire);
  if (hook == nullptr) {
    return 0;
  }
  const int refused = hook->before(call);
  if (refused == 0) {
    hook->after(call, 0);
  }
  return refused;
}

void file_point(std::string_view name, const fs::path& path) {
  const int error_number = errno;
  pass({.kind = FileCallKind::point, .path = text(path), .to = name},
       [](const FileCall&) { return 0; });
  errno = error_number;
}

int disk_open(const fs::path& path, int flags, mode_t mode) {
  return until_not_interrupted([&] {
    return pass(
        {.kind = FileCallKind::open, .path = text(path), .empties = (flags & O_TRUNC) != 0},
        [&](const FileCall&) { return ::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, mode); });
  });
}

ssize_t disk_write(int descriptor, const fs::path& path, std::span<const std::byte> bytes) {
  return pass({.kind = FileCallKind::write, .path = text(path), .bytes = bytes},
              [descriptor](const FileCall& call) {
                return ::write(descriptor, call.bytes.data(), call.bytes.size());
              });
}

int disk_write_all(int descriptor, const fs::path& path, std::span<const std::byte> bytes) {
  return write_all(
      bytes, [&](std::span<const std::byte> left) { return disk_write(descriptor, path, left); });
}

int disk_write_all_at(int descriptor, const fs::path& path, std::span<const std::byte> bytes,
                      std::uint64_t offset) {
  const std::byte* const begin = bytes.data();
  return write_all(bytes, [&](std::span<const std::byte> left) {
    const std::uint64_t at = offset + static_cast<std::uint64_t>(left.data() - begin);
    return pass({.kind = FileCallKind::write, .path = text(path), .bytes = left, .offset = at},
                [descriptor, at](const FileCall& call) {
                  return ::pwrite(descriptor, call.bytes.data(), call.bytes.size(),
                                  static_cast<off_t>(at));
                });
  });
}

int disk_truncate(int descriptor, const fs::path& path, std::uint64_t size_bytes) {
  return until_not_interrupted([&] {
    return pass(
        {.kind = FileCallKind::truncate, .path = text(path), .size_bytes = size_bytes},
        [&](const FileCall&) { return ::ftruncate(descriptor, static_cast<off_t>(size_bytes)); });
  });
}

int disk_sync(int descriptor, const fs::path& path) {
  return until_not_interrupted([&] {
    return pass({.kind = FileCallKind::sync, .path = text(path)},
                [descriptor](const FileCall&) { return ::fsync(descriptor); });
  });
}

int disk_close(int descriptor, const fs::path& path) {
  bool called = false;
  const int result = pass({.kind = FileCallKind::close, .path = text(path)}, [&](const FileCall&) {
    called = true;
    return ::close(descriptor);
  });
  if (!called) {  // A hook refused the call; the descriptor is closed whatever close() returns.
    const int error_number = errno;
    ::close(descriptor);
    errno = error_number;
  }
  return result < 0 && errno == EINTR ? 0 : result;
}

int disk_rename(const fs::path& from, const fs::path& to) {
  return pass({.kind = FileCallKind::rename, .path = text(from), .to = text(to)},
              [&](const FileCall&) { return std::rename(from.c_str(), to.c_str()); });
}

int disk_make_directory(const fs::path& path) {
  return pass({.kind = FileCallKind::make_directory, .path = text(path)},
              [&](const FileCall&) { return ::mkdir(path.c_str(), 0777); });
}

int disk_make_directory(int parent, const char* name, const fs::path& path, mode_t mode) {
  return pass({.kind = FileCallKind::make_directory, .path = text(path)},
              [&](const FileCall&) { return ::mkdirat(parent, name, mode); });
}

int disk_sync_directory(int descriptor, const fs::path& path) {
  return until_not_interrupted([&] {
    return pass({.kind = FileCallKind::sync_directory, .path = text(path)},
                [descriptor](const FileCall&) { return ::fsync(descriptor); });
  });
}

int disk_unlink(int parent, const char* name, const fs::path& path) {
  return pass({.kind = FileCallKind::unlink, .path = text(path)},
              [&](const FileCall&) { return ::unlinkat(parent, name, 0); });
}

int disk_remove_directory(int parent, const char* name, const fs::path& path) {
  return pass({.kind = FileCallKind::remove_directory, .path = text(path)},
              [&](const FileCall&) { return ::unlinkat(parent, name, AT_REMOVEDIR); });
}

int disk_open_to_read(const fs::path& path, int flags) {
  return pass_read({.path = text(path)},
                   [&](std::size_t) { return ::open(path.c_str(), flags | O_CLOEXEC); });
}

ssize_t disk_read(int descriptor, const fs::path& path, std::span<std::byte> out) {
  return pass_read({.path = text(path), .size_bytes = out.size()}, [&](std::size_t size_bytes) {
    return ::read(descriptor, out.data(), size_bytes);
  });
}

ssize_t disk_read_at(int descriptor, const fs::path& path, std::span<std::byte> out,
                     std::uint64_t offset) {
  return pass_read({.path = text(path), .size_bytes = out.size()}, [&](std::size_t size_bytes) {
    return ::pread(descriptor, out.data(), size_bytes, static_cast<off_t>(offset));
  });
}

}  // namespace train::storage
