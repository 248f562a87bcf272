#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// What to do if the last name of a path is a symbolic link.
enum class Links : std::uint8_t { follow, refuse };

/// A regular file, open for reading at any position. Unlike a mapping, a file that someone shortens
/// meanwhile, or a disk that fails, is an error here and not a signal.
///
/// Threading: read() may be called from several threads. All calls block on the disk.
class InputFile {
 public:
  /// Never waits for a writer of a named pipe. Errors: missing, not a regular file, no permission,
  /// a link where none may be (all user), other (failure).
  static Result<InputFile> open(const std::filesystem::path& path, Links links = Links::follow);

  /// Fills `out` with the bytes from `offset` on. Errors (failure): the file has no such bytes, or
  /// no longer; the disk.
  Status read(std::uint64_t offset, std::span<std::byte> out) const;

  /// Lets the system begin to read these bytes, so that the disk is busy before read() asks for
  /// them. A hint: nothing fails, nothing is waited for.
  void expect_read(std::uint64_t offset, std::uint64_t size_bytes) const;

  /// All of it, mapped to be read: null of an empty file. Valid without this. A file that someone
  /// shortens while it is mapped ends the process (SIGBUS): our writers only ever replace files by
  /// renaming.
  [[nodiscard]] Result<Mapping> map() const;

  /// All of it. Larger than `limit_bytes`: a failure, before anything is read.
  [[nodiscard]] Result<std::string> read_text(std::uint64_t limit_bytes) const;

  /// When it was opened.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  InputFile(std::filesystem::path path, int descriptor, std::uint64_t size_bytes)
      : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

  std::filesystem::path path_;
  Descriptor descriptor_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace train::storage
