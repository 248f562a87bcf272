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

/// The lines of a file that another process appends to, each once. A file that was replaced or cut
/// is read from its start again. Never more than one piece of it is in memory, and between two
/// calls no descriptor is held: a folder may have thousands of runs.
///
/// Whoever wrote the file, next() does not wait for him, leaves the folder by no link, and takes
/// the time of one piece. Threading: not thread-safe; next() blocks on the disk.
class LineTail {
 public:
  /// Bytes behind a line that may be read, whatever they are: what simdjson asks for.
  static constexpr std::size_t kPadding = 64;
  static constexpr std::size_t kPiece = std::size_t{4} << 20U;

  struct Limits {
    std::size_t line_bytes = std::size_t{1} << 20U;  ///< Longer ones are skipped; < kPiece.
    /// If so much is left to read, what is older is passed over.
    std::uint64_t newest_bytes = std::uint64_t{1} << 32U;
  };
  LineTail(Within place, Limits limits) : place_(std::move(place)), limits_(limits) {}

  struct Reader {
    std::function<void()> restart;                    ///< What was read before is no more.
    std::function<void(std::string_view line)> line;  ///< Whole, without its line feed.
  };
  enum class More : std::uint8_t { no, yes, no_file };
  /// Hands on the whole lines of the next piece.
  More next(const Reader& reader);

  [[nodiscard]] std::uint64_t size_bytes() const { return size_; }  ///< Of the file, as last seen.
  [[nodiscard]] std::uint64_t read_bytes() const { return offset_; }
  [[nodiscard]] std::uint64_t skipped_lines() const { return skipped_; }
  /// The beginning of the line at the end, which has no line feed yet.
  [[nodiscard]] std::string_view unfinished() const {
    return std::string_view(piece_).substr(0, filled_);
  }
  /// Why it could not be read though it is there; empty: it could.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  /// Which file it is.
  struct Identity {
    std::uint64_t device = 0, inode = 0;
    std::int64_t born_ns = 0;  ///< A new file may have the number of one that is gone. 0: unknown.
    bool operator==(const Identity&) const = default;
  };
  struct Found {
    Identity identity;
    std::uint64_t size_bytes = 0;
  };
  [[nodiscard]] static std::optional<Found> look(int descriptor, const char* path);
  More lose(const Reader& reader);
  More pause();
  void arrive(const Found& found, const Reader& reader);
  More read(int descriptor, const Reader& reader);
  void take_lines(const Reader& reader);

  Within place_;
  Limits limits_;
  std::optional<Identity> file_;  ///< That was read so far; none: there is none.
  std::uint64_t size_ = 0, offset_ = 0, skipped_ = 0;
  std::string problem_;
  std::string piece_;       ///< Room for a piece and the padding.
  std::size_t filled_ = 0;  ///< The beginning of a line, kept for the next call.
  bool skipping_ = false;   ///< Up to the next line feed.
};

}  // namespace train::storage
