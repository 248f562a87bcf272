#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace train::storage {

/// What becomes of half a record, which a full disk or a process that was killed leaves behind.
enum class HalfRecord : std::uint8_t {
  cut_off,     ///< The file has no other writer.
  begin_line,  ///< The file is of lines, with several writers: the next record begins a new line.
};

/// Appends whole records to a file that is kept beside a run and not worth its end: what the disk
/// refuses waits in memory and follows in order, as soon as there is room (ST-7: no record is lost
/// or torn while the process lives and what waits fits its limit). The first refusal is one
/// warning, and that all is written again is one line of the log.
///
/// Threading: one owner. append() and flush() block on the disk. Nothing is durable: a power cut
/// may take the newest records.
class AppendFile {
 public:
  /// Opens nothing yet. `limit_bytes`: of what waits; what comes when it is reached is dropped, and
  /// its number logged.
  explicit AppendFile(std::filesystem::path path, HalfRecord half = HalfRecord::cut_off,
                      std::size_t limit_bytes = std::size_t{64} << 20U);
  AppendFile(AppendFile&&) noexcept = default;
  AppendFile& operator=(AppendFile&&) noexcept = default;
  /// Tries once more to write what waits; what cannot be written then is logged.
  ~AppendFile();

  /// Creates the file if it is missing, and its directory. Empty: that is done; else why not, which
  /// does not keep append() from trying again.
  std::optional<Error> open();

  /// Writes `record` behind those that wait. Returns whether none waits any more.
  bool append(std::string_view record);
  /// Writes those that wait. The same.
  bool flush();

  /// From now on the file is its first `size_bytes`, which end with a whole record; what follows
  /// them is cut off at the latest before the next record is written. REQUIRES: cut_off.
  void cut(std::uint64_t size_bytes);

  /// Records that wait, the oldest first.
  template <class Visit>
  void each_waiting(const Visit& visit) const {
    for (const std::string& record : waiting_) {
      visit(std::string_view(record));
    }
  }
  /// Forgets those that `unwanted(record)` is true of.
  void drop_waiting(const std::function<bool(std::string_view)>& unwanted);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  /// Writes one record whole, or nothing of it: then the error.
  std::optional<Error> write(std::string_view record);
  std::optional<Error> mend_end();
  void keep(std::string_view record);
  void refused(const Error& why);
  void caught_up();

  std::filesystem::path path_;
  HalfRecord half_;
  std::size_t limit_bytes_;
  Descriptor file_;
  bool mended_ = false;                      ///< The file ends with a whole record.
  std::optional<std::uint64_t> size_bytes_;  ///< cut_off: of whole records.
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t waited_ = 0;   ///< Records, since the first refusal.
  std::uint64_t dropped_ = 0;  ///< The same.
  bool behind_ = false;
};

}  // namespace train::storage
