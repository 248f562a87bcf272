#include "checkpoint/models/adapters.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "checkpoint/load/reader.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

engine::StateView view_of(const ExportTensor& tensor, float* to) {
  return {.name = tensor.name_in_checkpoint(),
          .global_shape = tensor.shape,
          .first_row = 0,
          .rows = tensor.shape.empty() ? 1 : tensor.shape.front(),
          .data = reinterpret_cast<std::byte*>(to),
          .size_bytes = element_count(tensor) * sizeof(float)};
}

/// Weight += scale B A, or of a transposed one its transpose.
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

/// Reads the tensors of a model and adds to them what their adapters do.
class MergedWeights {
 public:
  MergedWeights(const fs::path& checkpoint, const Manifest& manifest,
                std::span<const ExportAdapter> adapters)
      : checkpoint_(checkpoint), manifest_(manifest), adapters_(adapters) {}

  Status read(std::span<const ExportTensor> tensors, std::span<float> out) const {
    std::vector<engine::StateView> views;
    std::span<float> left = out;
    for (const ExportTensor& tensor : tensors) {
      const auto to = left.first(element_count(tensor));
      left = left.subspan(to.size());
      if (tensor.parts.empty()) {
        views.push_back(view_of(tensor, to.data()));
      } else {
        TRAIN_RETURN_IF_ERROR(put_together(
            tensor,
            [this](const ExportPart& part, engine::RowRange rows, std::span<float> values) {
              return read_part(part, rows, values);
            },
            to));
      }
    }
    TRAIN_RETURN_IF_ERROR(restore_views(std::move(views)));
    for (const ExportTensor& tensor : tensors) {
      const auto elements = out.first(element_count(tensor));
      out = out.subspan(elements.size());
      if (tensor.parts.empty()) {
        TRAIN_RETURN_IF_ERROR(add_adapter(tensor.name, elements));
      }
    }
    return {};
  }

 private:
  Status restore_views(std::vector<engine::StateView> views) const {
    return restore(checkpoint_, manifest_, views, {.which = Restore::subset});
  }

  Status read_part(const ExportPart& part, engine::RowRange rows, std::span<float> values) const {
    TRAIN_RETURN_IF_ERROR(restore_views({{.name = part.stored,
                                          .global_shape = part.parameter.shape,
                                          .first_row = rows.first,
                                          .rows = rows.count,
                                          .data = reinterpret_cast<std::byte*>(values.data()),
                                          .size_bytes = values.size_bytes()}}));
    return add_adapter(part.parameter.name, values);
  }

  /// REQUIRES: the weight has no adapter, or all of it is there.
  Status add_adapter(std::string_view weight, std::span<float> elements) const {
    const auto adapter = std::find_if(adapters_.begin(), adapters_.end(),
                                      [&](const auto& one) { return one.weight == weight; });
    if (adapter == adapters_.end()) {
      return {};
    }
    std::vector<float> a(element_count(adapter->a));
    std::vector<float> b(element_count(adapter->b));
    TRAIN_RETURN_IF_ERROR(
        restore_views({view_of(adapter->a, a.data()), view_of(adapter->b, b.data())}));
    merge(*adapter, a, b, elements);
    return {};
  }

  const fs::path& checkpoint_;
  const Manifest& manifest_;
  std::span<const ExportAdapter> adapters_;
};

}  // namespace

Result<ExportReport> export_merged(const fs::path& checkpoint, const Manifest& manifest,
                                   const ExportRequest& request,
                                   std::span<const ExportAdapter> adapters) {
  std::vector<ExportTensor> all = request.tensors;
  for (const ExportAdapter& adapter : adapters) {
    all.insert(all.end(), {adapter.a, adapter.b});
  }
  TRAIN_RETURN_IF_ERROR(check_same_tensors(checkpoint, manifest, all));
  return export_tensors(request, tensors_of_checkpoint(checkpoint, manifest, adapters));
}

ReadTensors tensors_of_checkpoint(const fs::path& checkpoint, const Manifest& manifest,
                                  std::span<const ExportAdapter> adapters) {
  return [weights = MergedWeights(checkpoint, manifest, adapters)](
             std::span<const ExportTensor> tensors, std::span<float> out) {
    return weights.read(tensors, out);
  };
}

}  // namespace train::checkpoint
