#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Writes scalars to an event file that TensorBoard reads. Format: storage/README.md.
///
/// Threading: not thread-safe. Each record is one write(2), so a reader sees it at once and a
/// killed process leaves whole records; none is fsynced (curves are not checkpoints).
class TensorboardWriter {
 public:
  /// Starts a new event file in `directory` (created if missing); earlier files stay. `first_step`:
  /// TensorBoard drops what earlier files hold from that step on, so that a resumed run shows one
  /// curve. Errors: not writable (user), disk full (failure).
  static Result<TensorboardWriter> open(const std::filesystem::path& directory,
                                        std::int64_t first_step = 0);

  /// Wall time is now. A record that cannot be written whole is taken back and reported.
  Status scalar(std::string_view tag, std::int64_t step, float value);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  TensorboardWriter(std::filesystem::path path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}
  Status record(std::string_view event);

  std::filesystem::path path_;
  Descriptor descriptor_;
  std::int64_t size_bytes_ = 0;
};

/// CRC-32C (Castagnoli) of `bytes`, as TFRecord frames use it before masking.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace train::storage
