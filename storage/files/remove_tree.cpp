#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

/// Goes down by descriptors, so that a directory that is exchanged for a link meanwhile leads
/// nowhere else.
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

  /// Read before any goes, and sorted: the order of the calls does not depend on the file system.
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

}  // namespace

Status remove_tree(const fs::path& path) {
  TreeRemoval removal;
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  removal.remove(AT_FDCWD, clean.string(), clean);
  return removal.result();
}

}  // namespace train::storage
