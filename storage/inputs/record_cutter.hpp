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

/// One of the examples that an input holds, as text of JSON.
struct InputRecord {
  std::string_view text;             ///< Never blank, unless `fault` says why; valid in the call.
  std::uint64_t line = 1;            ///< Of the file, where it begins.
  std::optional<LineFault> fault{};  ///< Known without parsing `text`.
};
/// What it returns ends the reading.
using TakeRecord = std::function<Status(const InputRecord&)>;

/// Cuts what an input holds into records, whatever the pieces are in which it comes. Memory: one
/// record, which is given up at the limit. Threading: one owner.
class RecordCutter {
 public:
  virtual ~RecordCutter() = default;
  virtual Status feed(std::string_view piece, const TakeRecord& take) = 0;
  /// The input is at its end.
  virtual Status finish(const TakeRecord& take) = 0;
};

/// Records of more than `limit_bytes` are reported as too long, and passed over.
[[nodiscard]] std::unique_ptr<RecordCutter> make_line_cutter(std::size_t limit_bytes);
/// The elements of a JSON array, or JSON values one after the other, over any number of lines.
[[nodiscard]] std::unique_ptr<RecordCutter> make_value_cutter(std::size_t limit_bytes);
/// The rows of a table as RFC 4180 quotes them, whose first row names the members; an empty cell,
/// and those that pandas takes for missing, is null. Values stay texts: "1", "true".
[[nodiscard]] std::unique_ptr<RecordCutter> make_table_cutter(char delimiter,
                                                              std::size_t limit_bytes);

}  // namespace train::storage
