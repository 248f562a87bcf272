#include "storage/files/disk_digest.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/direct_io.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kDigestPieceBytes = std::size_t{1} << 20;

/// 0 or an error number.
int digest_all(int descriptor, StreamingDigest& digest) {
  const DirectBytes bytes = new_direct_bytes(kDigestPieceBytes);
  if (!bytes) {
    return ENOMEM;
  }
  bool direct = set_direct(descriptor, true);
  while (true) {
    const ssize_t got = ::read(descriptor, bytes.get(), kDigestPieceBytes);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0 && errno == EINVAL && direct) {
      // Refused only now, or where the last piece, which is shorter, has moved the offset.
      direct = false;
      if (!set_direct(descriptor, false)) {
        return errno;
      }
      continue;
    }
    if (got <= 0) {
      return got < 0 ? errno : 0;
    }
    digest.update(std::span(bytes.get(), static_cast<std::size_t>(got)));
  }
}

}  // namespace

Result<std::string> digest_on_disk(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) {
    return os_error(Access::read, path, errno);
  }
  (void)::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  StreamingDigest digest;
  const int error_number = digest_all(descriptor, digest);
  ::close(descriptor);
  return error_number != 0 ? Result<std::string>(os_error(Access::read, path, error_number))
                           : Result<std::string>(digest.finish());
}

}  // namespace train::storage
