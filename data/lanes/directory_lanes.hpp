#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/lanes/lane_source.hpp"
#include "data/rows/row_split.hpp"
#include "data/tokens/lane_order.hpp"
#include "engine/lanes/lane_slot.hpp"

namespace train::data {

/// Row of one directory's split.
struct SourceRow {
  bool validation = false;
  std::uint64_t row = 0;
  std::int64_t first_document = 0;  ///< Index of the split's first document, for LaneSequence.
};

/// Lanes of one directory, whose rows a mixture reads one by one.
class DirectoryLanes : public LaneSource {
 public:
  /// Fills `columns` with a row, and lists its documents at the beginning of `rest`, which becomes
  /// what is left; `first`: position of the row in its lane. Blocking (disk).
  [[nodiscard]] virtual Status read_row(const SourceRow& at, const RowColumns& columns,
                                        std::int32_t first,
                                        std::span<engine::LaneSequence>& rest) const = 0;
  /// As count(), of one training row.
  [[nodiscard]] virtual std::optional<engine::RowCount> count_row(std::uint64_t row) const = 0;
  /// Rows of the validation split; 0: it is not open.
  [[nodiscard]] virtual std::uint64_t validation_rows() const = 0;
  /// Documents of a split; 0 in token files.
  [[nodiscard]] virtual std::int64_t documents(bool validation) const = 0;

 protected:
  explicit DirectoryLanes(LaneFacts facts) : LaneSource(std::move(facts)) {}
};

/// Columns of row `row` of a lane of `rows` rows; empty where the lane has no such column.
/// `prompt_targets`: see RowColumns.
[[nodiscard]] RowColumns columns_of_row(const engine::LaneSlot& slot, std::uint64_t row,
                                        std::uint64_t rows, bool prompt_targets = false);
/// A row of padding alone.
void fill_padding(const RowColumns& columns);
/// Order of `sequences` rows of a directory in a run. Pure.
[[nodiscard]] LaneOrder lane_order(const configs::RunConfig& config, std::uint64_t sequences);

}  // namespace train::data
