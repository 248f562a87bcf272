#include "storage/files/direct_io.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/process/descriptor.hpp"
#include "base/process/joined_thread.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

/// Alignment of addresses, sizes and offsets for O_DIRECT; no known disk needs more, and one that
/// did would return EINVAL, after which ordinary writes are used.
constexpr std::size_t kDirectAlignment = 4096;
constexpr std::size_t kWritePieceBytes = std::size_t{2} << 20;
constexpr std::size_t kDigestPieceBytes = std::size_t{1} << 20;

/// Aligned memory. REQUIRES: a multiple of kDirectAlignment.
DirectBytes new_piece(std::size_t size) {
  DirectBytes bytes(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, size)));
  TRAIN_CHECK(bytes != nullptr, "no memory for a piece of a file");
  return bytes;
}

/// Turns O_DIRECT on or off. False, with errno, if the system refuses.
bool set_direct(int descriptor, bool direct) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 &&
         ::fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/// Makes the system start writing these bytes, without waiting. If it cannot, fsync does all of the
/// work.
int start_writing(int descriptor, std::uint64_t begin, std::uint64_t end) {
  const int result = ::sync_file_range(descriptor, static_cast<off64_t>(begin),
                                       static_cast<off64_t>(end - begin), SYNC_FILE_RANGE_WRITE);
  const bool unknown_here = errno == ENOSYS || errno == EINVAL || errno == ESPIPE;
  return result != 0 && !unknown_here ? errno : 0;
}

/// Returns 0 or an error number.
int digest_all(int descriptor, StreamingDigest& digest) {
  const DirectBytes bytes = new_piece(kDigestPieceBytes);
  bool direct = set_direct(descriptor, true);
  while (true) {
    const ssize_t got = ::read(descriptor, bytes.get(), kDigestPieceBytes);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0 && errno == EINVAL && direct) {
      // The system refuses only now, or the shorter last piece has moved the offset.
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

PieceWriter::PieceWriter(int descriptor, std::filesystem::path path)
    : descriptor_(descriptor), path_(std::move(path)) {}

PieceWriter::~PieceWriter() {
  if (thread_.joinable()) {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
}

int PieceWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (!filling_.bytes) {
      filling_.bytes = new_piece(kWritePieceBytes);
    }
    const auto part = bytes.first(std::min(bytes.size(), kWritePieceBytes - filling_.size));
    std::memcpy(filling_.bytes.get() + filling_.size, part.data(), part.size());
    filling_.size += part.size();
    bytes = bytes.subspan(part.size());
    if (filling_.size == kWritePieceBytes) {
      hand_over();
    }
  }
  const std::scoped_lock lock(mutex_);
  return error_number_;
}

int PieceWriter::finish() {
  std::unique_lock lock(mutex_);
  wait_until_written(lock);
  if (error_number_ == 0 && filling_.size > 0) {
    const auto rest = std::span(filling_.bytes.get(), filling_.size);
    const auto aligned =
        rest.first(direct_ ? rest.size() / kDirectAlignment * kDirectAlignment : 0);
    error_number_ = write_out(aligned);
    if (error_number_ == 0 && aligned.size() < rest.size()) {
      leave_direct();
      error_number_ = write_out(rest.subspan(aligned.size()));
    }
    filling_.size = 0;
  }
  return error_number_;
}

void PieceWriter::start() {
  writing_.bytes = new_piece(kWritePieceBytes);
  direct_ = set_direct(descriptor_, true);
  thread_ = JoinedThread([this] { serve(); });
}

void PieceWriter::hand_over() {
  if (!thread_.joinable()) {
    start();
  }
  {
    std::unique_lock lock(mutex_);
    wait_until_written(lock);
    std::swap(filling_, writing_);
    busy_ = true;
  }
  changed_.notify_all();
  filling_.size = 0;
}

void PieceWriter::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return busy_ || ending_; });
    if (!busy_) {
      return;
    }
    if (error_number_ == 0) {  // After an error the file is abandoned.
      lock.unlock();
      const int error_number = write_out({writing_.bytes.get(), writing_.size});
      lock.lock();
      error_number_ = error_number;
    }
    busy_ = false;
    changed_.notify_all();
  }
}

void PieceWriter::wait_until_written(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return !busy_; });
}

/// A refusal here shows up as an error of the next write.
void PieceWriter::leave_direct() {
  (void)set_direct(descriptor_, false);
  direct_ = false;
}

int PieceWriter::write_out(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = disk_write(descriptor_, path_, bytes);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0 && errno == EINVAL && direct_) {
      leave_direct();  // The system refuses only now, or after a short write: use ordinary writes
                       // from here on.
      continue;
    }
    if (written <= 0) {
      return written == 0 ? EIO : errno;  // No file system writes nothing without an error.
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    const std::uint64_t begin = written_bytes_;
    written_bytes_ += static_cast<std::uint64_t>(written);
    if (thread_.joinable() && !direct_) {
      if (const int error_number = start_writing(descriptor_, begin, written_bytes_);
          error_number != 0) {
        return error_number;
      }
    }
  }
  return 0;
}

Result<std::string> digest_on_disk(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file) {
    return os_error(Access::read, path, errno);
  }
  (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  StreamingDigest digest;
  if (const int error_number = digest_all(file.get(), digest); error_number != 0) {
    return os_error(Access::read, path, error_number);
  }
  return digest.finish();
}

}  // namespace train::storage
