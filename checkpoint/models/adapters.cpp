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

constexpr std::string_view kPeftPrefix = "base_model.model.";

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
    std::vector<std::vector<float>> matrices;
    const auto adapters = adapters_of(tensors);
    for (const ExportAdapter* adapter : adapters) {
      for (const ExportTensor* tensor : {&adapter->a, &adapter->b}) {
        matrices.emplace_back(element_count(*tensor));
        views.push_back(view_of(*tensor, matrices.back().data()));
      }
    }
    float* at = out.data();
    for (const ExportTensor& tensor : tensors) {
      views.push_back(view_of(tensor, at));
      at += element_count(tensor);
    }
    TRAIN_RETURN_IF_ERROR(restore(checkpoint_, manifest_, views, {.which = Restore::subset}));
    for (std::size_t i = 0; i < adapters.size(); ++i) {
      merge(*adapters[i], matrices[2 * i], matrices[2 * i + 1],
            part_of(tensors, adapters[i]->weight, out));
    }
    return {};
  }

 private:
  [[nodiscard]] std::vector<const ExportAdapter*> adapters_of(
      std::span<const ExportTensor> tensors) const {
    std::vector<const ExportAdapter*> found;
    for (const ExportAdapter& adapter : adapters_) {
      if (std::any_of(tensors.begin(), tensors.end(),
                      [&](const ExportTensor& one) { return one.name == adapter.weight; })) {
        found.push_back(&adapter);
      }
    }
    return found;
  }

  static std::span<float> part_of(std::span<const ExportTensor> tensors, std::string_view name,
                                  std::span<float> out) {
    std::size_t at = 0;
    for (const ExportTensor& tensor : tensors) {
      if (tensor.name == name) {
        return out.subspan(at, element_count(tensor));
      }
      at += element_count(tensor);
    }
    TRAIN_CHECK(false, "no tensor {}", name);
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
  const MergedWeights weights(checkpoint, manifest, adapters);
  return export_tensors(request, [&](std::span<const ExportTensor> tensors, std::span<float> out) {
    return weights.read(tensors, out);
  });
}

Result<ExportReport> export_adapters(const fs::path& checkpoint, const Manifest& manifest,
                                     ExportRequest request,
                                     std::span<const ExportAdapter> adapters) {
  for (const ExportAdapter& adapter : adapters) {
    for (ExportTensor tensor : {adapter.a, adapter.b}) {
      tensor.stored = tensor.name_in_checkpoint();
      tensor.name.insert(0, kPeftPrefix);
      request.tensors.push_back(std::move(tensor));
    }
  }
  const MergedWeights weights(checkpoint, manifest, {});
  return export_tensors(request, [&](std::span<const ExportTensor> tensors, std::span<float> out) {
    return weights.read(tensors, out);
  });
}

}  // namespace train::checkpoint
