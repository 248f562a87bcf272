#include "storage/files/input_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {

Result<InputFile> InputFile::open(const std::filesystem::path& path, Links links) {
  // Non-blocking, so that a named pipe is rejected below instead of waited for.
  const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  const int descriptor =
      disk_open_to_read(path, links == Links::refuse ? flags | O_NOFOLLOW : flags);
  if (descriptor < 0 && errno == ELOOP && links == Links::refuse) {
    return user_error(fmt::format(
        "cannot read {}: symbolic links are not allowed here; replace it with the file itself",
        path.string()));
  }
  if (descriptor < 0) {
    return os_error(Access::read, path, errno);
  }
  InputFile file(path, descriptor, 0);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) {
    return os_error(Access::read, path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return user_error(
        fmt::format("cannot read {}: not a regular file; check the path", path.string()));
  }
  file.size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  return file;
}

void InputFile::expect_read(std::uint64_t offset, std::uint64_t size_bytes) const {
  ::posix_fadvise(descriptor_.get(), static_cast<off_t>(offset), static_cast<off_t>(size_bytes),
                  POSIX_FADV_WILLNEED);
}

void InputFile::expect_some_parts() const {
  ::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_RANDOM);
}

Status InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  TRAIN_CHECK(descriptor_);
  if (offset > size_bytes_ || out.size() > size_bytes_ - offset) {
    return failure(fmt::format("cannot read {}: {} bytes from byte {} on, of a file of {}",
                               path_.string(), out.size(), offset, size_bytes_));
  }
  while (!out.empty()) {
    const ssize_t got = disk_read_at(descriptor_.get(), path_, out, offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return os_error(Access::read, path_, errno);
    }
    if (got == 0) {
      return failure(fmt::format("cannot read {}: it shrank to {} of {} bytes while it was read",
                                 path_.string(), offset, size_bytes_));
    }
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<Mapping> InputFile::map() const {
  const auto size = static_cast<std::size_t>(size_bytes_);
  if (size == 0) {
    return Mapping();
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor_.get(), 0);
  if (data == MAP_FAILED) {
    return os_error(Access::read, path_, errno);
  }
  return Mapping(static_cast<std::byte*>(data), {.size_bytes = size});
}

Result<std::string> InputFile::read_text(std::uint64_t limit_bytes) const {
  if (size_bytes_ > limit_bytes) {
    return failure(fmt::format("cannot read {}: {} bytes, above its limit of {}", path_.string(),
                               size_bytes_, limit_bytes));
  }
  std::string text(static_cast<std::size_t>(size_bytes_), '\0');
  TRAIN_RETURN_IF_ERROR(read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::string> digest_file(const std::filesystem::path& path) {
  constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;
  const auto file = TRAIN_TRY(InputFile::open(path));
  StreamingDigest digest;
  std::vector<std::byte> piece;
  for (std::uint64_t offset = 0; offset < file.size_bytes(); offset += piece.size()) {
    piece.resize(std::min(kPiece, file.size_bytes() - offset));
    TRAIN_RETURN_IF_ERROR(file.read(offset, piece));
    digest.update(piece);
  }
  return digest.finish();
}

}  // namespace train::storage
