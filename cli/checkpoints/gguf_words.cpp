#include "cli/checkpoints/gguf_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/checkpoints/export_words.hpp"
#include "cli/checkpoints/gguf_metadata.hpp"
#include "data/tokenizer/formats/gguf_vocabulary.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/block.hpp"
#include "engine/model/experts/experts_block.hpp"
#include "run/model/model_files.hpp"

namespace train::cli {
namespace {

using checkpoint::GgufKind;
using storage::GgufField;

struct KindWords {
  std::string_view dtype;
  GgufKind kind;
  std::uint32_t file_type;  ///< general.file_type, llama.cpp's number of it.
};
constexpr std::array kKindWords = {
    KindWords{"fp32", GgufKind::f32, 0}, KindWords{"fp16", GgufKind::f16, 1},
    KindWords{"bf16", GgufKind::bf16, 32}, KindWords{"q8_0", GgufKind::q8_0, 7},
    KindWords{"q4_k_m", GgufKind::q4_k_m, 15}};

/// Divisors of a rope, as a source of one tensor.
class ConstantSource final : public engine::WeightSource {
 public:
  explicit ConstantSource(std::vector<float> values) : values_(std::move(values)) {}
  Status read_rows(const engine::Parameter& /*parameter*/, std::int64_t /*first_row*/,
                   std::int64_t /*rows*/, std::span<float> out) const override {
    std::copy(values_.begin(), values_.end(), out.begin());
    return {};
  }

 private:
  std::vector<float> values_;
};

/// Experts of a layer; 0: there are none.
std::int64_t experts_of(const engine::ModelSpec& model) {
  std::int64_t experts = 0;
  for (const engine::LayerSpec& layer : model.layers) {
    const auto* block = engine::find_block<engine::ExpertsSpec>(layer);
    experts = block == nullptr ? experts : block->experts;
  }
  return experts;
}

/// True of what llama.cpp takes for a model of 70B: by its layers, whatever their width.
bool is_large(const engine::ModelSpec& model) {
  constexpr std::size_t layers_of_70b = 80;
  const std::string_view architecture = gguf_architecture(model.architecture);
  if (model.layers.size() != layers_of_70b) {
    return false;
  }
  const auto* attention = engine::find_block<engine::AttentionSpec>(model.layers.front());
  return architecture == "qwen2" || (architecture == "llama" && attention != nullptr &&
                                     attention->heads != attention->kv_heads);
}

std::string upper(std::string_view text) {
  std::string all(text);
  std::ranges::transform(all, all.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  return all;
}

}  // namespace

std::optional<GgufKind> gguf_kind_of(std::string_view dtype) {
  const auto* found = std::ranges::find(kKindWords, dtype, &KindWords::dtype);
  return found == kKindWords.end() ? std::nullopt : std::optional(found->kind);
}

Status make_gguf(checkpoint::ExportRequest& request, const engine::ModelSpec& model,
                 const std::string& config_text, const std::filesystem::path& tokenizer,
                 GgufKind kind, const std::string& name) {
  const auto config = nlohmann::ordered_json::parse(config_text);
  auto described = TRAIN_TRY(gguf_metadata(model, config));
  auto vocabulary = TRAIN_TRY(data::gguf_vocabulary(tokenizer, model.vocab_size, config));
  const auto* words = std::ranges::find(kKindWords, kind, &KindWords::kind);
  checkpoint::GgufExport settings{.kind = kind,
                                  .metadata = std::move(described.fields),
                                  .layers = static_cast<std::int64_t>(model.layers.size()),
                                  .experts = experts_of(model),
                                  .tied = model.tie_embeddings,
                                  .large = is_large(model)};
  constexpr std::uint32_t quantization_version = 2;
  settings.metadata.push_back({"general.name", name});
  settings.metadata.push_back({"general.file_type", words->file_type});
  settings.metadata.push_back({"general.quantization_version", quantization_version});
  std::ranges::move(vocabulary.fields, std::back_inserter(settings.metadata));
  std::vector<std::string> notes = std::move(described.notes);
  std::ranges::move(vocabulary.notes, std::back_inserter(notes));
  request.tensors = tensors_of(model, engine::Dialect::gguf);
  settings.attending = checkpoint::attending_layers(request.tensors);
  for (GgufConstant& constant : described.constants) {
    checkpoint::ExportTensor tensor{.name = constant.name,
                                    .shape = {static_cast<std::int64_t>(constant.values.size())}};
    tensor.source = std::make_shared<ConstantSource>(std::move(constant.values));
    request.tensors.push_back(std::move(tensor));
  }
  request.file = "model-" + upper(checkpoint::name_of(kind));
  request.format = checkpoint::gguf_format(std::move(settings));
  for (const checkpoint::ExportTensor& tensor : request.tensors) {
    TRAIN_RETURN_IF_ERROR(request.format->check(tensor));  // A mistake is one line, without notes.
  }
  run::show_notes(request.directory.string(), notes);
  request.config_text.clear();
  request.companions.clear();
  request.texts = {{"Modelfile", fmt::format("FROM ./{}.gguf\n", request.file)}};
  return {};
}

}  // namespace train::cli
