#include "cli/checkpoints/gguf_adapters.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cli/checkpoints/gguf_metadata.hpp"
#include "engine/model/tensor_map.hpp"

namespace train::cli {
using namespace checkpoint;
namespace {

using engine::TensorAxis;
using engine::TensorPart;

TensorPart whole_part(std::string name, const engine::Parameter& parameter) {
  return {.name = std::move(name),
          .shape = parameter.shape,
          .axes = {{.count = parameter.count(), .parameter = 1, .stored = 1}}};
}

/// B's rows where the weight has its own in the file. Nullopt: the file's tensor is not the weight
/// alone, row by row.
std::optional<TensorPart> part_of_b(const TensorPart& weight, const ExportAdapter& adapter,
                                    std::string name) {
  const std::int64_t inputs = adapter.a.cols();
  const std::int64_t rank = adapter.b.cols();
  TensorPart part = whole_part(std::move(name), adapter.b);
  const bool alone = weight.first == 0 && weight.stored == 0 && weight.added == 0.0F &&
                     weight.shape == std::vector{adapter.b.rows(), inputs};
  if (!alone) {
    return std::nullopt;
  }
  if (adapter.transposed) {  // The file has rows of outputs, as B.
    return part;
  }
  part.axes.clear();
  for (const TensorAxis& axis : weight.axes) {
    const bool inside = axis.parameter == 1 && axis.stored == 1 && axis.count % inputs == 0;
    const bool rows = axis.parameter % inputs == 0 && axis.stored % inputs == 0;
    if (!inside && !rows) {
      return std::nullopt;
    }
    part.axes.push_back(inside ? TensorAxis{axis.count / inputs * rank, 1, 1}
                               : TensorAxis{axis.count, axis.parameter / inputs * rank,
                                            axis.stored / inputs * rank});
  }
  return part;
}

/// True of maps that llama.cpp multiplies by without looking for an adapter: those of latent
/// attention, but its output.
bool is_without_adapters(const engine::ModelSpec& model, const std::string& stored) {
  return gguf_architecture(model.architecture) == "deepseek2" &&
         (stored.find(".attn_q") != std::string::npos ||
          stored.find(".attn_kv") != std::string::npos);
}

std::vector<storage::GgufField> metadata_of(const engine::ModelSpec& model) {
  // llama.cpp divides this by the rank.
  const auto rank = static_cast<double>(model.lora.rank);
  const double alpha = model.lora.rslora ? model.lora.alpha * std::sqrt(rank) : model.lora.alpha;
  constexpr std::uint32_t quantization_version = 2;
  return {{"general.architecture", std::string(gguf_architecture(model.architecture))},
          {"general.type", "adapter"},
          {"general.quantization_version", quantization_version},
          {"adapter.type", "lora"},
          {"adapter.lora.alpha", static_cast<float>(alpha)}};
}

}  // namespace

Result<GgufAdapters> gguf_adapters(const engine::ModelSpec& model,
                                   std::span<const ExportAdapter> adapters) {
  if (gguf_architecture(model.architecture).empty()) {
    return user_error(fmt::format(
        "adapters of architecture {} are not written as GGUF; export them with --format peft",
        model.architecture));
  }
  std::map<std::string, std::vector<TensorPart>> stored;
  for (engine::MappedParameter& mapped : engine::tensor_map(model, engine::Dialect::gguf)) {
    stored[mapped.parameter.name] = std::move(mapped.parts);
  }
  GgufAdapters made{.tensors = {},
                    .settings = {.kind = GgufKind::f32, .metadata = metadata_of(model)}};
  for (const ExportAdapter& adapter : adapters) {
    const std::vector<TensorPart>& parts = stored[adapter.weight];
    const std::string name = parts.empty() ? std::string() : parts.front().name;
    if (is_without_adapters(model, name)) {
      return user_error(fmt::format(
          "llama.cpp applies no adapter to {}; export the merged model with --format gguf, or the "
          "adapters with --format peft",
          adapter.weight));
    }
    const auto part =
        parts.size() == 1 ? part_of_b(parts.front(), adapter, name + ".lora_b") : std::nullopt;
    if (!part) {
      return user_error(fmt::format(
          "llama.cpp has no place for the adapter of {}, which is no tensor of its own there; "
          "export the merged model with --format gguf, or the adapters with --format peft",
          adapter.weight));
    }
    made.tensors.push_back({.name = name + ".lora_a",
                            .shape = adapter.a.shape,
                            .parts = {{adapter.a, whole_part(name + ".lora_a", adapter.a)}}});
    made.tensors.push_back(
        {.name = part->name, .shape = adapter.b.shape, .parts = {{adapter.b, *part}}});
  }
  return made;
}

}  // namespace train::cli
