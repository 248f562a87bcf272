#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "storage/files/within.hpp"

namespace train::storage {

/// Follows a file that another process appends to, and returns each line once. A replaced or
/// truncated file is read from its start again, also if it is as long by then, or longer: its bytes
/// before the place that was read to are others. At most one piece is in memory, and no descriptor
/// is held between calls: a folder may have thousands of runs.
///
/// next() never waits for the writer, does not leave the folder through links, and takes the time
/// of one piece. Threading: not thread-safe; next() blocks on the disk.
class LineTail {
 public:
  /// Readable bytes behind a line, of any content, which simdjson requires.
  static constexpr std::size_t kPadding = 64;
  static constexpr std::size_t kPiece = std::size_t{4} << 20U;
  static constexpr std::size_t kMark = 1024;

  struct Limits {
    std::size_t line_bytes = std::size_t{1} << 20U;  ///< Longer lines are skipped; < kPiece.
    /// If more is left to read, the older part is skipped.
    std::uint64_t newest_bytes = std::uint64_t{1} << 32U;
  };
  LineTail(Within place, Limits limits) : place_(std::move(place)), limits_(limits) {}

  struct Reader {
    std::function<void()> restart;                    ///< Lines read before are no longer valid.
    std::function<void(std::string_view line)> line;  ///< Complete line, without its line feed.
  };
  enum class More : std::uint8_t { no, yes, no_file };
  /// Passes on the complete lines of the next piece.
  More next(const Reader& reader);

  [[nodiscard]] std::uint64_t skipped_lines() const { return skipped_; }
  /// Beginning of the last line, which has no line feed yet.
  [[nodiscard]] std::string_view unfinished() const {
    return std::string_view(piece_).substr(0, filled_);
  }
  /// Reason why an existing file could not be read; empty if it could.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  /// Identity of the file.
  struct Identity {
    std::uint64_t device = 0, inode = 0;
    std::int64_t born_ns = 0;  ///< Birth time, as a new file may reuse an inode number. 0: unknown.
    bool operator==(const Identity&) const = default;
  };
  struct Found {
    Identity identity;
    std::uint64_t size_bytes = 0;
    std::int64_t changed_ns = 0;
  };
  [[nodiscard]] static std::optional<Found> look(int descriptor, const char* path);
  More lose(const Reader& reader);
  More pause();
  void arrive(int descriptor, const Found& found, const Reader& reader);
  [[nodiscard]] bool has_mark(int descriptor) const;
  More read(int descriptor, const Reader& reader);
  void take_lines(const Reader& reader);

  Within place_;
  Limits limits_;
  std::optional<Identity> file_;  ///< The file read so far; nullopt: none.
  std::uint64_t size_ = 0, offset_ = 0, skipped_ = 0;
  std::int64_t changed_ns_ = 0;
  std::string mark_;  ///< Bytes before offset_, kMark of them at most.
  std::string problem_;
  std::string piece_;       ///< Buffer for a piece and the padding.
  std::size_t filled_ = 0;  ///< Bytes of an unfinished line, kept for the next call.
  bool skipping_ = false;   ///< Skip up to the next line feed.
};

}  // namespace train::storage
