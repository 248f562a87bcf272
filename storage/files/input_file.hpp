#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Handling of a symbolic link as the last name of a path.
enum class Links : std::uint8_t { follow, refuse };

/// Regular file, open for reading at any position. Unlike with a mapping, a file shortened
/// meanwhile, or a failing disk, is an error here and not a signal.
///
/// Threading: read() may be called from several threads. All calls block on the disk.
class InputFile {
 public:
  /// Never waits for a named pipe's writer. Errors: missing, not a regular file, no permission, a
  /// link where refused (all user), other (failure).
  static Result<InputFile> open(const std::filesystem::path& path, Links links = Links::follow);

  /// Fills `out` with the bytes from `offset` on. Errors (failure): the file has fewer bytes; the
  /// disk.
  Status read(std::uint64_t offset, std::span<std::byte> out) const;

  /// Asks the system to read ahead these bytes before read() needs them. A hint: does not fail or
  /// block.
  void expect_read(std::uint64_t offset, std::uint64_t size_bytes) const;

  /// Tells the system to read nothing ahead by itself, for a reader of some parts of the file. A
  /// hint: does not fail or block.
  void expect_some_parts() const;

  /// Maps the whole file read-only: null if empty. Outlives this object. A mapped file that is
  /// shortened ends the process (SIGBUS): own writers replace files only by renaming.
  [[nodiscard]] Result<Mapping> map() const;

  /// Reads the whole file. More than `limit_bytes` is a failure, before anything is read.
  [[nodiscard]] Result<std::string> read_text(std::uint64_t limit_bytes) const;

  /// Size when opened.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  InputFile(std::filesystem::path path, int descriptor, std::uint64_t size_bytes)
      : path_(std::move(path)), descriptor_(descriptor), size_bytes_(size_bytes) {}

  std::filesystem::path path_;
  Descriptor descriptor_;
  std::uint64_t size_bytes_ = 0;
};

/// StreamingDigest of the whole file. Errors: those of InputFile. Blocks on the disk.
[[nodiscard]] Result<std::string> digest_file(const std::filesystem::path& path);

}  // namespace train::storage
