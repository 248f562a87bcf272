#include "storage/files/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "storage/files/disk_full.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

fs::path directory_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

/// Opens what is there already, syncs it with `sync(descriptor, path)` and closes it.
template <class Sync>
Status sync_path(const fs::path& path, int flags, const Sync& sync) {
  const int descriptor = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return os_error(Access::write, path, errno);
  }
  const int result = sync(descriptor, path);
  const int error_number = errno;
  ::close(descriptor);  // opened to read: it has nothing of its own to lose
  if (result != 0) {
    return os_error(Access::write, path, error_number);
  }
  return {};
}

}  // namespace

Error os_error(Access access, const fs::path& path, int error_number) {
  const std::string text = std::generic_category().message(error_number);
  const std::string directory = directory_of(path).string();
  const char* verb = access == Access::read ? "read" : "write";
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return failure(fmt::format("cannot write {}: {}: {}: free space in {}", path.string(), text,
                                 disk_full_words, directory));
    case EACCES:
    case EPERM:
    case EROFS:
      return user_error(
          access == Access::read
              ? fmt::format("cannot read {}: {}: no read permission; change it or choose another",
                            path.string(), text)
              : fmt::format("cannot write {}: {}: no write permission in {}; change it or choose "
                            "another directory",
                            path.string(), text, directory));
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
      return user_error(fmt::format("cannot {} {}: {}; check the path", verb, path.string(), text));
    default:
      return failure(fmt::format("cannot {} {}: {}", verb, path.string(), text));
  }
}

Result<AtomicFile> AtomicFile::create(const fs::path& target) {
  static std::atomic<unsigned> serial{0};
  const fs::path hidden =
      directory_of(target) /
      fmt::format(".{}.tmp-{}-{}", target.filename().string(), ::getpid(), serial++);
  const int descriptor = disk_open(hidden, O_WRONLY | O_TRUNC | O_NOFOLLOW);
  if (descriptor < 0) {
    return os_error(Access::write, target, errno);
  }
  return AtomicFile(target, hidden, descriptor);
}

AtomicFile::AtomicFile(fs::path target, fs::path hidden, int descriptor)
    : target_(std::move(target)),
      hidden_(std::move(hidden)),
      descriptor_(descriptor),
      writer_(std::make_unique<PieceWriter>(descriptor_, hidden_)) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      hidden_(std::exchange(other.hidden_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      writer_(std::move(other.writer_)),
      size_bytes_(other.size_bytes_) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    discard();
    target_ = std::move(other.target_);
    hidden_ = std::exchange(other.hidden_, {});
    descriptor_ = std::exchange(other.descriptor_, -1);
    writer_ = std::move(other.writer_);
    size_bytes_ = other.size_bytes_;
  }
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  writer_.reset();  // it may be writing still
  if (descriptor_ >= 0) {
    disk_close(std::exchange(descriptor_, -1), hidden_);  // of bytes that nobody wants
  }
  if (!hidden_.empty()) {
    disk_unlink(AT_FDCWD, hidden_.c_str(), hidden_);
    hidden_.clear();
  }
}

Error AtomicFile::abandon(int error_number) {
  discard();
  return os_error(Access::write, target_, error_number);
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  TRAIN_CHECK(descriptor_ >= 0, "{} was committed or abandoned", target_.string());
  if (const int error_number = writer_->write(bytes); error_number != 0) {
    return abandon(error_number);
  }
  size_bytes_ += bytes.size();
  return {};
}

Status AtomicFile::sync() {
  TRAIN_CHECK(descriptor_ >= 0, "{} was committed or abandoned", target_.string());
  if (const int error_number = writer_->finish(); error_number != 0) {
    return abandon(error_number);
  }
  if (disk_sync(descriptor_, hidden_) != 0) {
    return abandon(errno);
  }
  return {};
}

Status AtomicFile::commit() {
  TRAIN_RETURN_IF_ERROR(sync());
  writer_.reset();
  if (disk_close(std::exchange(descriptor_, -1), hidden_) != 0 ||
      disk_rename(hidden_, target_) != 0) {
    return abandon(errno);
  }
  hidden_.clear();
  return fsync_directory(directory_of(target_));
}

Status write_file_atomically(const fs::path& path, std::string_view content) {
  auto file = AtomicFile::create(path);
  if (!file) {
    return file.error();
  }
  TRAIN_RETURN_IF_ERROR(file->write(content));
  return file->commit();
}

Result<std::string> read_file(const fs::path& path, std::uint64_t limit_bytes) {
  const int descriptor = disk_open_to_read(path, O_RDONLY);
  if (descriptor < 0) {
    return os_error(Access::read, path, errno);
  }
  std::string content;
  std::string piece(std::size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = disk_read(descriptor, path, std::as_writable_bytes(std::span(piece)));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    const int error_number = errno;
    if (got <= 0) {
      ::close(descriptor);
      if (got < 0) {
        return os_error(Access::read, path, error_number);
      }
      return content;
    }
    content.append(piece, 0, static_cast<std::size_t>(got));
    if (content.size() > limit_bytes) {
      ::close(descriptor);
      return failure(fmt::format("cannot read {}: larger than {} bytes, so not what it should be",
                                 path.string(), limit_bytes));
    }
  }
}

Result<fs::path> absolute_path(const fs::path& path) {
  std::error_code code;
  fs::path found = fs::absolute(path, code);
  if (code) {
    return failure(fmt::format("{}: cannot be found: {}", path.string(), code.message()));
  }
  return found;
}

Status make_directory(const fs::path& path) {
  std::error_code code;
  if (path.empty() || fs::is_directory(path, code)) {
    return {};
  }
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  TRAIN_RETURN_IF_ERROR(make_directory(clean.parent_path()));
  if (disk_make_directory(clean) != 0) {
    if (errno == EEXIST && fs::is_directory(clean, code)) {
      return {};
    }
    if (errno == EEXIST) {
      return user_error(
          fmt::format("cannot create directory {}: a file has that name; move it", clean.string()));
    }
    return os_error(Access::write, clean, errno);
  }
  return fsync_directory(directory_of(clean));
}

Status fsync_file(const fs::path& path) { return sync_path(path, O_NOFOLLOW, disk_sync); }

Status fsync_directory(const fs::path& path) {
  return sync_path(path, O_DIRECTORY, disk_sync_directory);
}

Status rename_durably(const fs::path& from, const fs::path& to) {
  if (disk_rename(from, to) != 0) {
    return os_error(Access::write, to, errno);
  }
  TRAIN_RETURN_IF_ERROR(fsync_directory(directory_of(to)));
  if (directory_of(from) != directory_of(to)) {
    return fsync_directory(directory_of(from));
  }
  return {};
}

}  // namespace train::storage
