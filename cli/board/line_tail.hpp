#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"

namespace train::cli {

/// The lines of a file that another process appends to, each once. A file that was replaced or cut
/// is read from its start again. Never more than one piece of it is in memory.
///
/// Threading: not thread-safe; next() blocks on the disk.
class LineTail {
 public:
  /// Bytes behind a line that may be read, whatever they are: what simdjson asks for.
  static constexpr std::size_t kPadding = 64;
  static constexpr std::size_t kPiece = std::size_t{4} << 20U;  ///< Longest line, too.

  explicit LineTail(std::filesystem::path path) : path_(std::move(path)) {}

  struct Reader {
    std::function<void()> restart;                    ///< What was read before is no more.
    std::function<void(std::string_view line)> line;  ///< Whole, without its line feed.
  };
  enum class More : std::uint8_t { no, yes, no_file };
  /// Hands on the whole lines of the next piece. A line longer than a piece is skipped.
  More next(const Reader& reader);

  [[nodiscard]] std::uint64_t size_bytes() const { return size_; }  ///< Of the file, as last seen.
  [[nodiscard]] std::uint64_t read_bytes() const { return offset_; }
  [[nodiscard]] std::uint64_t skipped_lines() const { return skipped_; }

 private:
  bool reopen(const Reader& reader);
  void take_lines(const Reader& reader);

  std::filesystem::path path_;
  Descriptor file_;
  std::uint64_t inode_ = 0, device_ = 0;
  std::uint64_t size_ = 0, offset_ = 0, skipped_ = 0;
  std::string piece_;       ///< Room for a piece and the padding.
  std::size_t filled_ = 0;  ///< The beginning of a line, kept for the next call.
  bool skipping_ = false;   ///< Up to the next line feed.
};

}  // namespace train::cli
