#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"
#include "storage/files/direct_io.hpp"

namespace train::storage {

enum class Access : std::uint8_t { read, write };

/// Error of a failed system call on `path`, as one line with the fix. Missing files and permissions
/// are user errors (exit 2); a full disk, a broken disk and everything else are failures (exit 1).
[[nodiscard]] Error os_error(Access access, const std::filesystem::path& path, int error_number);

/// Words in the text of a failure if a disk or quota was full: in os_error(), RocksStore and
/// rsync_file().
inline constexpr std::string_view kDiskFullWords = "disk full";

/// True if a failure was a full disk. Checks the text, as failures cross processes as text.
[[nodiscard]] inline bool says_disk_full(std::string_view failure) {
  return failure.find(kDiskFullWords) != std::string_view::npos;
}

/// Permission to read a created file.
enum class Readers : std::uint8_t { as_umask, owner };

/// File that appears under its name whole or not at all (ST-1).
///
/// Bytes go to a hidden name in the same directory; commit() makes them durable and renames.
/// Threading: not thread-safe. All calls block on the disk. Destroyed without commit(), the hidden
/// file is removed. After an error of write(), sync() or commit() the file is abandoned: removed,
/// and no further call is allowed (a second fsync after a failed one may report success for lost
/// bytes).
class AtomicFile {
 public:
  /// Errors: directory missing or not writable (user), disk full (failure).
  static Result<AtomicFile> create(const std::filesystem::path& target,
                                   Readers readers = Readers::as_umask);

  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() { discard(); }

  /// Appends. The bytes are buffered and written in large pieces, so a write's error may be
  /// returned by a later call.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

  /// Makes the content durable without publishing it.
  Status sync();

  /// sync, close, rename over the target, sync the directory. On return the file survives a power
  /// cut. REQUIRES: not committed yet. If syncing the directory fails, the rename has already
  /// happened: the file exists, but a power cut may undo it.
  Status commit();

  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }

 private:
  AtomicFile(std::filesystem::path target, std::filesystem::path hidden, int descriptor)
      : target_(std::move(target)),
        hidden_(std::move(hidden)),
        descriptor_(descriptor),
        writer_(std::make_unique<PieceWriter>(descriptor, hidden_)) {}
  void discard() noexcept;
  Error abandon(int error_number);

  std::filesystem::path target_;
  std::filesystem::path hidden_;
  Descriptor descriptor_;
  std::unique_ptr<PieceWriter> writer_;  ///< Null when the hidden file no longer exists.
  std::uint64_t size_bytes_ = 0;
};

/// Replaces or creates `path` with `content`, whole or not at all; durable on return. Blocks.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);
/// write_file_atomically() with mode 0600 from the first byte on.
[[nodiscard]] Status write_private_file(const std::filesystem::path& path,
                                        std::string_view content);

/// Reads the whole content of a regular file. More than `limit_bytes` is a failure. Other errors:
/// those of InputFile.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// `path` as an absolute path. Errors (failure): the working directory no longer exists.
Result<std::filesystem::path> absolute_path(const std::filesystem::path& path);

/// Creates `path` and its missing parents; each new entry is durable on return. Existing
/// directories are fine.
Status make_directory(const std::filesystem::path& path);

/// Names of the entries of `directory`, sorted. Empty for a missing directory.
Result<std::vector<std::string>> entry_names(const std::filesystem::path& directory);

Status fsync_file(const std::filesystem::path& path);
Status fsync_directory(const std::filesystem::path& path);

/// Renames within one file system and makes both directories' entries durable.
Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a file, or a directory tree, without following symbolic links. Missing: fine. Continues
/// after errors; returns the first.
Status remove_tree(const std::filesystem::path& path);

}  // namespace train::storage
