#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.hpp"
#include "base/result.hpp"
#include "storage/files/direct_io.hpp"

namespace train::storage {

enum class Access : std::uint8_t { read, write };

/// The error of a failed system call on `path`, as one line with the fix.
/// Missing files and missing permission are the user's (exit 2); a full disk, a broken disk and all
/// else are failures (exit 1).
[[nodiscard]] Error os_error(Access access, const std::filesystem::path& path, int error_number);

/// What the text of a failure says if a disk was full, or a quota used up: that of os_error(), of
/// RocksStore and of rsync_file().
inline constexpr std::string_view disk_full_words = "disk full";

/// Whether a failure is one of a full disk. Asks the text, as failures cross processes as text.
[[nodiscard]] inline bool says_disk_full(std::string_view failure) {
  return failure.find(disk_full_words) != std::string_view::npos;
}

/// Who may read a file that is made.
enum class Readers : std::uint8_t { as_umask, owner };

/// A file that appears under its name whole or not at all (ST-1).
///
/// Bytes go to a hidden name in the same directory; commit() makes them durable and renames.
/// Threading: not thread-safe. All calls block on the disk. Dropped without commit(): the hidden
/// file is removed. After an error of write(), sync() or commit() it is abandoned: removed, and
/// nothing may be called any more (a second fsync after a failed one may report success for bytes
/// that are lost).
class AtomicFile {
 public:
  /// Errors: directory missing or not writable (user), disk full (failure).
  static Result<AtomicFile> create(const std::filesystem::path& target,
                                   Readers readers = Readers::as_umask);

  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile() { discard(); }

  /// Appends. The bytes are copied and written in large pieces, so that the error of one may come
  /// with a later call.
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

  /// Makes the content durable without publishing it.
  Status sync();

  /// sync, close, rename over the target, sync the directory. On return the file survives a power
  /// cut. REQUIRES: not committed yet. An error of syncing the directory comes after the rename:
  /// the file is there, but a power cut may take it back.
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
  std::unique_ptr<PieceWriter> writer_;  ///< Null once there is no hidden file any more.
  std::uint64_t size_bytes_ = 0;
};

/// Replaces or creates `path` with `content`, whole or not at all; durable on return. Blocks.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);
/// The same, with mode 0600 from the first byte on.
[[nodiscard]] Status write_private_file(const std::filesystem::path& path,
                                        std::string_view content);

/// The whole content of a regular file. Larger than `limit_bytes`: a failure. Other errors: those
/// of InputFile.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// The same path from the root of the file system on. Errors (failure): there is no working
/// directory any more.
Result<std::filesystem::path> absolute_path(const std::filesystem::path& path);

/// Creates `path` and its missing parents; each new entry is durable on return. There already:
/// fine.
Status make_directory(const std::filesystem::path& path);

/// Names of what is in `directory`, sorted. A missing directory holds none.
Result<std::vector<std::string>> entry_names(const std::filesystem::path& directory);

Status fsync_file(const std::filesystem::path& path);
Status fsync_directory(const std::filesystem::path& path);

/// Renames within one file system and makes both directories' entries durable.
Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a file, or a directory and all below it, without following symbolic links. Missing:
/// fine. What fails to go does not keep the rest from going; the first error is returned.
Status remove_tree(const std::filesystem::path& path);

}  // namespace train::storage
