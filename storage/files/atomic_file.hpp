#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/piece_writer.hpp"

namespace train::storage {

enum class Access : std::uint8_t { read, write };

/// The error of a failed system call on `path`, as one line with the fix.
/// Missing files and missing permission are the user's (exit 2); a full disk, a broken disk and all
/// else are failures (exit 1).
[[nodiscard]] Error os_error(Access access, const std::filesystem::path& path, int error_number);

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
  static Result<AtomicFile> create(const std::filesystem::path& target);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

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
  AtomicFile(std::filesystem::path target, std::filesystem::path hidden, int descriptor);
  void discard() noexcept;
  Error abandon(int error_number);

  std::filesystem::path target_;
  std::filesystem::path hidden_;
  int descriptor_ = -1;
  std::unique_ptr<PieceWriter> writer_;
  std::uint64_t size_bytes_ = 0;
};

/// Replaces or creates `path` with `content`, whole or not at all; durable on return. Blocks.
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// The whole content of a regular file. Larger than `limit_bytes`: a failure.
Result<std::string> read_file(const std::filesystem::path& path, std::uint64_t limit_bytes);

/// The same path from the root of the file system on. Errors (failure): there is no working
/// directory any more.
Result<std::filesystem::path> absolute_path(const std::filesystem::path& path);

/// Creates `path` and its missing parents; each new entry is durable on return. There already:
/// fine.
Status make_directory(const std::filesystem::path& path);

Status fsync_file(const std::filesystem::path& path);
Status fsync_directory(const std::filesystem::path& path);

/// Renames within one file system and makes both directories' entries durable.
Status rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a file, or a directory and all below it, without following symbolic links. Missing:
/// fine. What fails to go does not keep the rest from going; the first error is returned.
Status remove_tree(const std::filesystem::path& path);

}  // namespace train::storage
