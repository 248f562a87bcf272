#include "storage/files/private_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/descriptor.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOwnerOnly = 0600;
constexpr mode_t kOwnerOnlyDirectory = 0700;

Status write_all(int file, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      return storage::os_error(storage::Access::write, path, errno);
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file) != 0) {
    return storage::os_error(storage::Access::write, path, errno);
  }
  return {};
}

}  // namespace

Status make_private_directory(const fs::path& path) {
  TRAIN_RETURN_IF_ERROR(storage::make_directory(path));
  if (::chmod(path.c_str(), kOwnerOnlyDirectory) != 0) {
    return storage::os_error(storage::Access::write, path, errno);
  }
  return {};
}

Status write_private_file(const fs::path& path, std::string_view content) {
  const fs::path hidden =
      path.parent_path() / fmt::format(".{}.tmp-{}", path.filename().string(), ::getpid());
  ::unlink(hidden.c_str());  // of a process that had this number before
  Descriptor file(
      ::open(hidden.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly));
  if (!file) {
    return storage::os_error(storage::Access::write, path, errno);
  }
  Status status = write_all(file.get(), content, path);
  file.reset();
  if (status) {
    status = storage::rename_durably(hidden, path);
  }
  if (!status) {
    ::unlink(hidden.c_str());
  }
  return status;
}

}  // namespace train::storage
