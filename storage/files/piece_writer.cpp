#include "storage/files/piece_writer.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kWritePieceBytes = std::size_t{2} << 20;

DirectBytes new_piece() {
  DirectBytes bytes = new_direct_bytes(kWritePieceBytes);
  TRAIN_CHECK(bytes != nullptr, "no memory for a piece of a file");
  return bytes;
}

/// Has the system start writing these bytes without waiting for them. Where it cannot, fsync does
/// all of the work.
int start_writing(int descriptor, std::uint64_t begin, std::uint64_t end) {
  const int result = ::sync_file_range(descriptor, static_cast<off64_t>(begin),
                                       static_cast<off64_t>(end - begin), SYNC_FILE_RANGE_WRITE);
  const bool unknown_here = errno == ENOSYS || errno == EINVAL || errno == ESPIPE;
  return result != 0 && !unknown_here ? errno : 0;
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
      filling_.bytes = new_piece();
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
        rest.first(direct_ ? rest.size() / direct_alignment * direct_alignment : 0);
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
  writing_.bytes = new_piece();
  direct_ = set_direct(descriptor_, true);
  thread_ = std::thread([this] { serve(); });
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
    if (error_number_ == 0) {  // after an error the file is not worth a write
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

/// Whether or not the system agrees: what it refuses then is the error of the next write.
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
      leave_direct();  // refused only now, or after a short write: ordinary ones from here on
      continue;
    }
    if (written <= 0) {
      return written == 0 ? EIO : errno;  // no file system takes nothing without an error
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

}  // namespace train::storage
