#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/result.hpp"
#include "storage/files/append_file.hpp"

namespace train::storage {

/// Writes scalars and texts to an event file for TensorBoard. Format: storage/README.md.
///
/// Threading: not thread-safe. Each record is one write(2), so readers see it at once and a killed
/// process leaves whole records; none is fsynced (curves are not checkpoints). Records that cannot
/// be written wait (AppendFile).
class TensorboardWriter {
 public:
  /// Names a new event file in `directory`, which begin() creates; earlier files stay.
  explicit TensorboardWriter(const std::filesystem::path& directory);

  /// Makes TensorBoard ignore earlier events from `first_step` on, so that a resumed run shows one
  /// curve. Errors: the file cannot be written (user).
  Status begin(std::int64_t first_step = 0);

  /// The wall time of scalars and texts is the current time.
  void scalar(std::string_view tag, std::int64_t step, float value);

  /// `text`: Markdown in UTF-8, shown by TensorBoard's text dashboard.
  void text(std::string_view tag, std::int64_t step, std::string_view text);

  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  void record(std::string_view event);

  AppendFile file_;
  bool begun_ = false;
};

/// CRC-32C (Castagnoli) of `bytes`, as in TFRecord frames before masking.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace train::storage
