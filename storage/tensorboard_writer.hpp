#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/append_file.hpp"

namespace train::storage {

/// Writes scalars to an event file that TensorBoard reads. Format: storage/README.md.
///
/// Threading: not thread-safe. Each record is one write(2), so a reader sees it at once and a
/// killed process leaves whole records; none is fsynced (curves are not checkpoints). What cannot
/// be written waits (AppendFile).
class TensorboardWriter {
 public:
  /// A new event file in `directory`, which begin() makes; earlier files stay.
  explicit TensorboardWriter(const std::filesystem::path& directory);

  /// TensorBoard drops what the files hold from `first_step` on, so that a resumed run shows one
  /// curve. Errors: the file may not be written (user).
  Status begin(std::int64_t first_step = 0);

  /// Wall time is now.
  void scalar(std::string_view tag, std::int64_t step, float value);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  void record(std::string_view event);

  AppendFile file_;
  bool begun_ = false;
};

/// CRC-32C (Castagnoli) of `bytes`, as TFRecord frames use it before masking.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace train::storage
