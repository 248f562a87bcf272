#include "checkpoint/row_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/check.hpp"
#include "checkpoint/blocks.hpp"

namespace train::checkpoint {
namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Error another_model(std::string_view source, std::string_view text) {
  return user_error(
      fmt::format("{} is of another model: {}; use the configuration it was made with, or another "
                  "run.name",
                  source, text));
}

}  // namespace

RecordsByName by_name(std::span<const TensorRecord> tensors) {
  RecordsByName records;
  for (const TensorRecord& record : tensors) {
    records[record.name].push_back(&record);
  }
  return records;
}

Status check_fit(std::string_view source, const RecordsByName& records,
                 std::span<const engine::StateView> state, Restore which) {
  std::set<std::string_view> asked;
  for (const engine::StateView& view : state) {
    const auto found = records.find(view.name);
    if (found == records.end()) {
      return another_model(source, fmt::format("tensor {}: wanted shape {}, found none", view.name,
                                               shape_text(view.global_shape)));
    }
    const TensorRecord& record = *found->second.front();
    const std::int64_t all = record.shape.empty() ? 1 : record.shape.front();
    if (record.shape != view.global_shape || record.dtype != "F32") {
      return another_model(source, fmt::format("tensor {}: wanted shape {} F32, found {} {}",
                                               view.name, shape_text(view.global_shape),
                                               shape_text(record.shape), record.dtype));
    }
    TRAIN_CHECK(view.first_row >= 0 && view.rows >= 0 && view.rows <= all - view.first_row,
                "tensor {}: rows {} + {} of {}", view.name, view.first_row, view.rows, all);
    TensorRecord asked_rows = record;
    asked_rows.rows = view.rows;
    TRAIN_CHECK(view.rows == 0 || rows_bytes(asked_rows) == view.size_bytes,
                "tensor {}: {} bytes for {} rows", view.name, view.size_bytes, view.rows);
    asked.insert(view.name);
  }
  if (which == Restore::every_tensor) {
    for (const auto& [name, parts] : records) {
      if (!asked.contains(name)) {
        return another_model(source, fmt::format("tensor {}: wanted none, found shape {}", name,
                                                 shape_text(parts.front()->shape)));
      }
    }
  }
  return {};
}

std::vector<Wanted> wanted_of(const RecordsByName& records, std::span<engine::StateView> state) {
  std::vector<Wanted> wanted;
  for (const engine::StateView& view : state) {
    for (const TensorRecord* record : records.at(view.name)) {
      const std::int64_t first = std::max(record->first_row, view.first_row);
      const std::int64_t last =
          std::min(record->first_row + record->rows, view.first_row + view.rows);
      if (first >= last || view.size_bytes == 0) {
        continue;
      }
      const std::uint64_t row_bytes = view.size_bytes / static_cast<std::uint64_t>(view.rows);
      const auto bytes_to = [row_bytes](std::int64_t row, std::int64_t from) {
        return static_cast<std::uint64_t>(row - from) * row_bytes;
      };
      wanted.push_back({record, bytes_to(first, record->first_row),
                        bytes_to(last, record->first_row),
                        view.data + bytes_to(first, view.first_row)});
    }
  }
  return wanted;
}

}  // namespace train::checkpoint
