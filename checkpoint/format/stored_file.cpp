#include "checkpoint/format/stored_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::checkpoint {

namespace fs = std::filesystem;

Result<StoredFile> open_stored(const fs::path& checkpoint, const std::string& name) {
  TRAIN_CHECK(!name.empty() && name.find('/') == std::string::npos, "\"{}\" is a path", name);
  const fs::path path = checkpoint / name;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      return storage::os_error(storage::Access::read, path, errno);
    }
    return StoredFile{.file = {}, .damage = fmt::format("{} is missing", name)};
  }
  if (!S_ISREG(status.st_mode)) {
    return StoredFile{
        .file = {},
        .damage = fmt::format("{} is {}", name,
                              S_ISLNK(status.st_mode) ? "a symbolic link" : "not a regular file")};
  }
  auto file = TRAIN_TRY(storage::InputFile::open(path, storage::Links::refuse));
  return StoredFile{.file = std::move(file), .damage = {}};
}

std::string entry_defect(const storage::TensorEntry& entry, const TensorRecord& record) {
  const std::vector<std::int64_t> shape = rows_shape(record.shape, record.rows);
  if (entry.dtype == record.dtype && entry.shape == shape) {
    return {};
  }
  return fmt::format("tensor {} is {} [{}], the manifest says {} [{}]", storage::shown(record.name),
                     storage::shown(entry.dtype), fmt::join(entry.shape, ", "),
                     storage::shown(record.dtype), fmt::join(shape, ", "));
}

Result<ManifestFinding> examine_manifest(const fs::path& checkpoint) {
  const auto stored = TRAIN_TRY(open_stored(checkpoint, kManifestFileName));
  if (!stored.file) {
    return ManifestFinding{.manifest = {}, .damage = stored.damage};
  }
  if (stored.file->size_bytes() > kManifestTextLimit) {
    return ManifestFinding{
        .manifest = {},
        .damage = fmt::format("{} has {} bytes, above its limit of {}", kManifestFileName,
                              stored.file->size_bytes(), kManifestTextLimit)};
  }
  const auto text = TRAIN_TRY(stored.file->read_text(kManifestTextLimit));
  auto manifest = parse_manifest(text, stored.file->path().string());
  if (!manifest && manifest.error().kind == ErrorKind::user) {
    return manifest.error();
  }
  if (!manifest) {
    return ManifestFinding{.manifest = {}, .damage = manifest.error().message};
  }
  const auto step = checkpoint_step(checkpoint.filename().string());
  if (step && *step != manifest->fields.step) {
    return ManifestFinding{
        .manifest = {}, .damage = fmt::format("its manifest says step {}", manifest->fields.step)};
  }
  return ManifestFinding{.manifest = std::move(*manifest), .damage = {}};
}

Result<Manifest> read_manifest(const fs::path& checkpoint) {
  auto finding = TRAIN_TRY(examine_manifest(checkpoint));
  if (!finding.manifest) {
    return damage(fmt::format("{} is damaged: {}", checkpoint.string(), finding.damage));
  }
  return std::move(*finding.manifest);
}

}  // namespace train::checkpoint
