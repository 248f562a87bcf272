#include "storage/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

namespace train::storage {
namespace {

namespace fs = std::filesystem;

fs::path directory_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

Status sync_path(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) {
    return os_error(Access::write, path, errno);
  }
  const int result = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
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
      return failure(fmt::format("cannot write {}: {}: disk full: free space in {}", path.string(),
                                 text, directory));
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
  const int descriptor = ::open(hidden.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return os_error(Access::write, target, errno);
  }
  return AtomicFile(target, hidden, descriptor);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : target_(std::move(other.target_)),
      hidden_(std::move(other.hidden_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_bytes_(other.size_bytes_) {
  other.hidden_.clear();
}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    discard();
    target_ = std::move(other.target_);
    hidden_ = std::exchange(other.hidden_, {});
    descriptor_ = std::exchange(other.descriptor_, -1);
    size_bytes_ = other.size_bytes_;
  }
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
  }
  if (!hidden_.empty()) {
    ::unlink(hidden_.c_str());
    hidden_.clear();
  }
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  TRAIN_CHECK(descriptor_ >= 0);
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) {
        continue;
      }
      return os_error(Access::write, target_, errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    size_bytes_ += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status AtomicFile::sync() {
  TRAIN_CHECK(descriptor_ >= 0);
  if (::fsync(descriptor_) != 0) {
    return os_error(Access::write, target_, errno);
  }
  return {};
}

Status AtomicFile::commit() {
  TRAIN_RETURN_IF_ERROR(sync());
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    return os_error(Access::write, target_, errno);
  }
  if (::rename(hidden_.c_str(), target_.c_str()) != 0) {
    return os_error(Access::write, target_, errno);
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
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return os_error(Access::read, path, errno);
  }
  std::string content;
  std::string piece(std::size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
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

Status make_directory(const fs::path& path) {
  std::error_code code;
  if (path.empty() || fs::is_directory(path, code)) {
    return {};
  }
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  TRAIN_RETURN_IF_ERROR(make_directory(clean.parent_path()));
  if (::mkdir(clean.c_str(), 0777) != 0) {
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

Status fsync_file(const fs::path& path) { return sync_path(path, O_RDONLY); }

Status fsync_directory(const fs::path& path) { return sync_path(path, O_RDONLY | O_DIRECTORY); }

Status rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return os_error(Access::write, to, errno);
  }
  TRAIN_RETURN_IF_ERROR(fsync_directory(directory_of(to)));
  if (directory_of(from) != directory_of(to)) {
    return fsync_directory(directory_of(from));
  }
  return {};
}

Status remove_tree(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) {
    return os_error(Access::write, path, code.value());
  }
  return {};
}

}  // namespace train::storage
