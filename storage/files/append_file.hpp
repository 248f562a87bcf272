#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/process/descriptor.hpp"

namespace train::storage {

/// Handling of half a record, left behind by a full disk or a killed process.
enum class HalfRecord : std::uint8_t {
  cut_off,     ///< Cut it off: the file has no other writer.
  begin_line,  ///< Begin a new line: the file consists of lines, with several writers.
};

/// Appends whole records to a file kept beside a run, whose loss must not end the run. Records that
/// the disk rejects wait in memory and follow in order as soon as there is room (ST-7: no record is
/// lost or torn while the process lives and the queue fits its limit). The first rejection logs one
/// warning, and catching up logs one line.
///
/// Threading: one owner. append() and flush() block on the disk. Nothing is durable: a power cut
/// may take the newest records.
class AppendFile {
 public:
  /// Opens nothing yet. `limit_bytes`: of the queue; records beyond it are dropped, and their
  /// number is logged.
  explicit AppendFile(std::filesystem::path path, HalfRecord half = HalfRecord::cut_off,
                      std::size_t limit_bytes = std::size_t{64} << 20U);
  AppendFile(AppendFile&&) noexcept = default;
  AppendFile& operator=(AppendFile&&) noexcept = default;
  /// Tries once more to write the queue, and logs what cannot be written.
  ~AppendFile();

  /// Creates the file if it is missing, and its directory. Returns nullopt on success, otherwise
  /// the error, which does not stop append() from trying again.
  std::optional<Error> open();

  /// Writes `record` behind the queued ones. Returns true if the queue is empty.
  bool append(std::string_view record);
  /// Writes the queue. Returns true if it is empty.
  bool flush();

  /// Shortens the file to its first `size_bytes`, which end with a whole record; the rest is cut
  /// off at the latest before the next record is written. REQUIRES: cut_off.
  void cut(std::uint64_t size_bytes);

  /// Visits queued records, oldest first.
  template <class Visit>
  void each_waiting(const Visit& visit) const {
    for (const std::string& record : waiting_) {
      visit(std::string_view(record));
    }
  }
  /// Drops queued records for which `unwanted(record)` is true.
  void drop_waiting(const std::function<bool(std::string_view)>& unwanted);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  /// Writes one record whole, or nothing of it; returns the error.
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
  std::optional<std::uint64_t> size_bytes_;  ///< cut_off: bytes of whole records.
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t waited_ = 0;   ///< Records queued since the first rejection.
  std::uint64_t dropped_ = 0;  ///< Records dropped since the first rejection.
  bool behind_ = false;
};

}  // namespace train::storage
