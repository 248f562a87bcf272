#include "checkpoint/models/checkpoint_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "checkpoint/load/reader.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Adds scale B A to the weight, or the transpose of scale B A to a transposed weight.
void merge(const ExportAdapter& adapter, std::span<const float> a, std::span<const float> b,
           std::span<float> weight) {
  const auto rank = static_cast<std::size_t>(adapter.a.shape.front());
  const std::size_t inputs = a.size() / rank;
  const std::size_t outputs = b.size() / rank;
  TRAIN_CHECK(weight.size() == inputs * outputs, "{}: an adapter of another shape", adapter.weight);
  std::vector<double> row(inputs);
  for (std::size_t output = 0; output < outputs; ++output) {
    std::fill(row.begin(), row.end(), 0.0);
    for (std::size_t r = 0; r < rank; ++r) {
      const double factor = adapter.scale * static_cast<double>(b[output * rank + r]);
      for (std::size_t input = 0; input < inputs; ++input) {
        row[input] += factor * static_cast<double>(a[r * inputs + input]);
      }
    }
    for (std::size_t input = 0; input < inputs; ++input) {
      float& value =
          weight[adapter.transposed ? input * outputs + output : output * inputs + input];
      value = static_cast<float>(static_cast<double>(value) + row[input]);
    }
  }
}

}  // namespace

CheckpointWeights::CheckpointWeights(const fs::path& checkpoint, const Manifest& manifest,
                                     std::span<const ExportAdapter> adapters, std::string averages)
    : checkpoint_(checkpoint),
      adapters_(adapters),
      prefix_(std::move(averages)),
      files_(std::make_unique<OpenCheckpoint>(checkpoint, manifest)) {
  for (const TensorRecord& record : manifest.tensors) {
    if (!prefix_.empty() && record.name.starts_with(prefix_)) {
      averages_.insert(record.name);
    }
  }
}

std::string CheckpointWeights::name_of(const engine::Parameter& parameter) const {
  const std::string average = prefix_ + parameter.name;
  return averages_.contains(average) ? average : engine::weight_name(parameter.name);
}

std::int64_t CheckpointWeights::piece_end(const engine::Parameter& parameter,
                                          std::int64_t first_row, std::int64_t rows) const {
  return files_->piece_end(name_of(parameter), first_row, rows);
}

Status CheckpointWeights::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                                    std::int64_t rows, std::span<float> out) const {
  if (!prefix_.empty() && averages_.empty()) {
    return user_error(fmt::format("{} has no running average of its weights: leave --ema out",
                                  checkpoint_.string()));
  }
  std::vector<engine::StateView> views = {{.name = name_of(parameter),
                                           .global_shape = parameter.shape,
                                           .first_row = first_row,
                                           .rows = rows,
                                           .data = reinterpret_cast<std::byte*>(out.data()),
                                           .size_bytes = out.size_bytes()}};
  TRAIN_RETURN_IF_ERROR(files_->restore(views, {.which = Restore::subset}));
  const auto adapter = std::find_if(adapters_.begin(), adapters_.end(),
                                    [&](const auto& one) { return one.weight == parameter.name; });
  if (adapter == adapters_.end()) {
    return {};
  }
  std::vector<float> matrices[2];
  const engine::Parameter* parameters[] = {&adapter->a, &adapter->b};
  for (std::size_t i = 0; i < 2; ++i) {
    matrices[i].resize(static_cast<std::size_t>(parameters[i]->count()));
    TRAIN_RETURN_IF_ERROR(read_rows(*parameters[i], 0, parameters[i]->rows(), matrices[i]));
  }
  merge(*adapter, matrices[0], matrices[1], out);
  return {};
}

}  // namespace train::checkpoint
