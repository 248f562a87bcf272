#include "storage/files/file_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <span>
#include <string>

#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

bool means_no_locks(int error_number) {
  return error_number == ENOSYS || error_number == EOPNOTSUPP || error_number == ENOLCK;
}

std::string owner_of(int descriptor) {
  std::string text(32, '\0');
  const ssize_t got = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  const std::size_t end = text.find_first_not_of("0123456789");
  text.resize(end == std::string::npos ? text.size() : end);
  return text.empty() ? "(unknown)" : text;
}

}  // namespace

bool lock_if_free(int descriptor) {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || means_no_locks(errno);
}

Result<FileLock> FileLock::acquire(const std::filesystem::path& directory, std::string_view name) {
  const std::filesystem::path path = directory / name;
  const int descriptor = disk_open(path, O_RDWR | O_NOFOLLOW);
  if (descriptor < 0) {
    return os_error(Access::write, path, errno);
  }
  FileLock lock(descriptor);
  if (!lock_if_free(descriptor)) {
    if (errno == EWOULDBLOCK) {
      return user_error(fmt::format("{} is already in use by process {}; wait for it or stop it",
                                    directory.string(), owner_of(descriptor)));
    }
    return os_error(Access::write, path, errno);
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (disk_truncate(descriptor, path, 0) != 0 ||
      disk_write_all(descriptor, path, std::as_bytes(std::span(pid))) != 0) {
    return os_error(Access::write, path, errno);
  }
  return lock;
}

Result<FileLock> FileLock::wait_for(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return os_error(Access::write, directory, errno);
  }
  FileLock lock(descriptor);
  while (::flock(descriptor, LOCK_EX) != 0 && !means_no_locks(errno)) {
    if (errno != EINTR) {
      return os_error(Access::write, directory, errno);
    }
  }
  return lock;
}

}  // namespace train::storage
