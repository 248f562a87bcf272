#include "storage/files/atomic_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>

#include "base/text/paths.hpp"
#include "storage/files/file_calls.hpp"
#include "storage/files/input_file.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

fs::path directory_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

/// Nearest existing directory above `path`: the one whose permissions or free space count.
fs::path existing_directory(const fs::path& path) {
  std::error_code unknown;
  const fs::path full = fs::absolute(path, unknown);
  if (unknown) {
    return directory_of(path);
  }
  fs::path found = full.parent_path();
  while (found.has_relative_path() && !fs::is_directory(found, unknown)) {
    found = found.parent_path();
  }
  return found;
}

/// Opens an existing file, syncs it with `sync(descriptor, path)` and closes it.
template <class Sync>
Status sync_path(const fs::path& path, int flags, const Sync& sync) {
  const Descriptor file(::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC));
  return file && sync(file.get(), path) == 0 ? Status() : os_error(Access::write, path, errno);
}

Status write_all(Result<AtomicFile> file, std::string_view content) {
  TRAIN_RETURN_IF_ERROR(file);
  TRAIN_RETURN_IF_ERROR(file->write(content));
  return file->commit();
}

/// Removes a tree by descriptors, so that a directory replaced by a link meanwhile leads nowhere
/// else.
class TreeRemoval {
 public:
  void remove(int parent, const std::string& name, const fs::path& path) {
    struct stat facts {};
    if (::fstatat(parent, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
      note(path, errno);
      return;
    }
    if (!S_ISDIR(facts.st_mode)) {
      note(path, disk_unlink(parent, name.c_str(), path) == 0 ? 0 : errno);
      return;
    }
    empty(parent, name, path);
    note(path, disk_remove_directory(parent, name.c_str(), path) == 0 ? 0 : errno);
  }

  [[nodiscard]] Status result() const { return first_ ? Status(*first_) : Status{}; }

 private:
  void empty(int parent, const std::string& name, const fs::path& path) {
    const int descriptor =
        ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR* const directory = descriptor < 0 ? nullptr : ::fdopendir(descriptor);
    if (directory == nullptr) {
      note(path, errno);
      if (descriptor >= 0) {
        ::close(descriptor);
      }
      return;
    }
    for (const std::string& entry : names(directory, path)) {
      remove(descriptor, entry, path / entry);
    }
    ::closedir(directory);
  }

  /// Read before any is removed, and sorted: the order of the calls does not depend on the file
  /// system.
  std::vector<std::string> names(DIR* directory, const fs::path& path) {
    std::vector<std::string> found;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
        found.emplace_back(entry->d_name);
      }
    }
    note(path, errno);
    std::sort(found.begin(), found.end());
    return found;
  }

  void note(const fs::path& path, int error_number) {
    if (error_number != 0 && error_number != ENOENT && !first_) {
      first_ = os_error(Access::write, path, error_number);
    }
  }

  std::optional<Error> first_;
};

/// Creates `path` and what lacks above it; errors name `wanted`, the whole path that was asked for.
Status make_ancestor(const fs::path& path, const fs::path& wanted) {
  std::error_code code;
  if (path.empty() || fs::is_directory(path, code)) {
    return {};
  }
  const fs::path clean = without_slash(path);
  TRAIN_RETURN_IF_ERROR(make_ancestor(clean.parent_path(), wanted));
  if (disk_make_directory(clean) != 0) {
    const int error_number = errno;
    if (error_number == EEXIST && fs::is_directory(clean, code)) {
      return {};
    }
    if (error_number == EEXIST) {
      return user_error(
          fmt::format("cannot create directory {}: {}; move it", wanted.string(),
                      clean == wanted ? "a file has that name" : clean.string() + " is a file"));
    }
    return os_error(Access::write, wanted, error_number);
  }
  return fsync_directory(directory_of(clean));
}

}  // namespace

Error os_error(Access access, const fs::path& path, int error_number) {
  const std::string text = std::generic_category().message(error_number);
  const char* verb = access == Access::read ? "read" : "write";
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
      return failure(fmt::format("cannot write {}: {}: {}: free space in {}", path.string(), text,
                                 kDiskFullWords, existing_directory(path).string()));
    case EACCES:
    case EPERM:
    case EROFS:
      return user_error(
          access == Access::read
              ? fmt::format("cannot read {}: {}: no read permission; change it or choose another",
                            path.string(), text)
              : fmt::format("cannot write {}: {}: no write permission in {}; change it or choose "
                            "another directory",
                            path.string(), text, existing_directory(path).string()));
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return user_error(fmt::format("cannot {} {}: {}; check the path", verb, path.string(), text));
    case EMFILE:
      return failure(fmt::format("cannot {} {}: {}; raise `ulimit -n`", verb, path.string(), text));
    default:
      return failure(fmt::format("cannot {} {}: {}", verb, path.string(), text));
  }
}

Result<AtomicFile> AtomicFile::create(const fs::path& target, Readers readers) {
  static std::atomic<unsigned> serial{0};
  const fs::path hidden =
      directory_of(target) /
      fmt::format(".{}.tmp-{}-{}", target.filename().string(), ::getpid(), serial++);
  const bool owned = readers == Readers::owner;
  if (owned) {
    ::unlink(hidden.c_str());  // Hidden file of an earlier process with this pid.
  }
  const int flags = O_WRONLY | O_NOFOLLOW | (owned ? O_EXCL : O_TRUNC);
  const int descriptor = disk_open(hidden, flags, owned ? 0600 : 0666);
  if (descriptor < 0) {
    return os_error(Access::write, target, errno);
  }
  return AtomicFile(target, hidden, descriptor);
}

void AtomicFile::discard() noexcept {
  if (!writer_) {
    return;
  }
  writer_.reset();  // It may still be writing.
  if (descriptor_) {
    disk_close(descriptor_.release(), hidden_);  // The bytes are discarded.
  }
  disk_unlink(AT_FDCWD, hidden_.c_str(), hidden_);
}

Error AtomicFile::abandon(int error_number) {
  discard();
  return os_error(Access::write, target_, error_number);
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  TRAIN_CHECK(descriptor_, "{} was committed or abandoned", target_.string());
  if (const int error_number = writer_->write(bytes); error_number != 0) {
    return abandon(error_number);
  }
  size_bytes_ += bytes.size();
  return {};
}

Status AtomicFile::sync() {
  TRAIN_CHECK(descriptor_, "{} was committed or abandoned", target_.string());
  if (const int error_number = writer_->finish(); error_number != 0) {
    return abandon(error_number);
  }
  if (disk_sync(descriptor_.get(), hidden_) != 0) {
    return abandon(errno);
  }
  return {};
}

Status AtomicFile::commit() {
  TRAIN_RETURN_IF_ERROR(sync());
  if (disk_close(descriptor_.release(), hidden_) != 0 || disk_rename(hidden_, target_) != 0) {
    return abandon(errno);
  }
  writer_.reset();
  return fsync_directory(directory_of(target_));
}

Status write_file_atomically(const fs::path& path, std::string_view content) {
  return write_all(AtomicFile::create(path), content);
}

Status write_private_file(const fs::path& path, std::string_view content) {
  return write_all(AtomicFile::create(path, Readers::owner), content);
}

Result<std::string> read_file(const fs::path& path, std::uint64_t limit_bytes) {
  const auto file = TRAIN_TRY(InputFile::open(path));
  return file.read_text(limit_bytes);
}

Result<fs::path> absolute_path(const fs::path& path) {
  std::error_code code;
  fs::path found = fs::absolute(path, code);
  if (code) {
    return failure(fmt::format("{}: cannot be found: {}", path.string(), code.message()));
  }
  return found;
}

Status make_directory(const fs::path& path) { return make_ancestor(path, path); }

Result<std::vector<std::string>> entry_names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator entry(directory, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    names.push_back(entry->path().filename().string());
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    return os_error(Access::read, directory, code.value());
  }
  std::sort(names.begin(), names.end());
  return names;
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

Status remove_tree(const fs::path& path) {
  TreeRemoval removal;
  const fs::path clean = without_slash(path);
  removal.remove(AT_FDCWD, clean.string(), clean);
  return removal.result();
}

}  // namespace train::storage
