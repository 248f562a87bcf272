#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.hpp"
#include "storage/inputs/line_fault.hpp"

namespace train::storage {

/// One example of an input, as JSON text.
struct InputRecord {
  std::string_view text;             ///< Never blank, unless `fault` is set; valid during the call.
  std::uint64_t line = 1;            ///< Line of the file at which it begins.
  std::optional<LineFault> fault{};  ///< Fault found without parsing `text`.
};
/// An error it returns ends the reading.
using TakeRecord = std::function<Status(const InputRecord&)>;

/// Splits an input's content, in pieces of any size, into records. Memory: one record, up to the
/// limit. Threading: one owner.
class RecordCutter {
 public:
  virtual ~RecordCutter() = default;
  virtual Status feed(std::string_view piece, const TakeRecord& take) = 0;
  /// Called at the input's end.
  virtual Status finish(const TakeRecord& take) = 0;
};

/// Records of more than `limit_bytes` are reported as too long, and skipped.
[[nodiscard]] std::unique_ptr<RecordCutter> make_line_cutter(std::size_t limit_bytes);
/// Splits the elements of a JSON array, or consecutive JSON values, over any number of lines.
[[nodiscard]] std::unique_ptr<RecordCutter> make_value_cutter(std::size_t limit_bytes);
/// Splits the rows of a table with RFC 4180 quoting, whose first row names the members; an empty
/// cell, and the values that pandas reads as missing, become null. Values stay strings: "1",
/// "true".
[[nodiscard]] std::unique_ptr<RecordCutter> make_table_cutter(char delimiter,
                                                              std::size_t limit_bytes);

}  // namespace train::storage
