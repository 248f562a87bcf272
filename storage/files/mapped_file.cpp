#include "storage/files/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "storage/files/atomic_file.hpp"

namespace train::storage {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  // Non-blocking, so that a named pipe is refused below instead of waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return os_error(Access::read, path, errno);
  }
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    const int error_number = errno;
    ::close(descriptor);
    return os_error(Access::read, path, error_number);
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return user_error(
        fmt::format("cannot read {}: not a regular file; check the path", path.string()));
  }
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  void* data = nullptr;
  if (size_bytes > 0) {
    data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  }
  const int error_number = errno;
  ::close(descriptor);
  if (data == MAP_FAILED) {
    return os_error(Access::read, path, error_number);
  }
  return MappedFile(path, static_cast<const std::byte*>(data), size_bytes);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    release();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

MappedFile::~MappedFile() { release(); }

void MappedFile::release() noexcept {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_bytes_);
    data_ = nullptr;
  }
}

}  // namespace train::storage
