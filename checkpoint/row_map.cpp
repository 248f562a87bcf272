#include "checkpoint/row_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <tuple>

#include "checkpoint/blocks.hpp"
#include "engine/base/check.hpp"

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

/// The rows of a view as a record of no file.
TensorRecord record_of(const engine::StateView& view) {
  return {.name = view.name,
          .shape = view.global_shape,
          .file = {},
          .first_row = view.first_row,
          .rows = view.rows};
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

Status restore_held(std::string_view source, std::span<const engine::StateView> held,
                    std::span<engine::StateView> state) {
  const auto has_rows = [](const engine::StateView& view) { return view.rows > 0; };
  std::vector<const engine::StateView*> views;
  for (const engine::StateView& view : held) {
    if (has_rows(view)) {
      views.push_back(&view);
    }
  }
  std::sort(views.begin(), views.end(), [](const auto* a, const auto* b) {
    return std::tie(a->name, a->first_row) < std::tie(b->name, b->first_row);
  });
  const auto twice =
      std::adjacent_find(views.begin(), views.end(), [](const auto* a, const auto* b) {
        return a->name == b->name && a->first_row + a->rows > b->first_row;
      });
  if (twice != views.end()) {
    return failure(fmt::format("{}: tensor {}: rows are there twice", source, (*twice)->name));
  }
  std::vector<TensorRecord> tensors;
  for (const engine::StateView* view : views) {
    tensors.push_back(record_of(*view));
  }
  std::vector<engine::StateView> asked;
  std::copy_if(state.begin(), state.end(), std::back_inserter(asked), has_rows);
  const RecordsByName records = by_name(tensors);
  TRAIN_RETURN_IF_ERROR(check_fit(source, records, asked, Restore::subset));
  std::vector<Wanted> wanted;
  for (engine::StateView& view : asked) {
    std::uint64_t found = 0;
    for (const Wanted& part : wanted_of(records, std::span(&view, 1))) {
      found += part.end - part.begin;
      wanted.push_back(part);
    }
    if (found != view.size_bytes) {
      return failure(fmt::format("{}: tensor {}: rows of {} + {} are missing", source, view.name,
                                 view.first_row, view.rows));
    }
  }
  for (const Wanted& part : wanted) {
    const auto index = static_cast<std::size_t>(part.record - tensors.data());
    std::memcpy(part.to, views[index]->data + part.begin, part.end - part.begin);
  }
  return {};
}

}  // namespace train::checkpoint
