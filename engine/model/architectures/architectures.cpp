#include "engine/model/architectures/architectures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/model/architectures/model_config.hpp"

namespace train::engine {
namespace {

#define TRAIN_ARCHITECTURE_ENTRY(identifier, model_type, class_name) \
  {model_type, class_name, identifier##_model},
constexpr auto kArchitectures =
    std::to_array<ModelArchitecture>({TRAIN_ARCHITECTURES(TRAIN_ARCHITECTURE_ENTRY)});
#undef TRAIN_ARCHITECTURE_ENTRY

std::string known_types() {
  std::string names;
  for (const ModelArchitecture& architecture : kArchitectures) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", architecture.model_type);
  }
  return names;
}

/// What no architecture here has, whatever it is.
void refuse_unsupported(ModelConfig& config) {
  config.require_zero({"attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop",
                       "hidden_dropout", "classifier_dropout"});
}

void check_sizes(ModelConfig& config, const ModelSpec& spec) {
  if (!spec.positions.empty() && config.sequence_length() > spec.position_rows) {
    config.refuse(fmt::format("data.sequence_length is {}, but the model has {} learned positions",
                              config.sequence_length(), spec.position_rows));
  }
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& attention = layer.attention;
    if (attention.heads % attention.kv_heads != 0) {
      config.refuse(fmt::format("num_attention_heads {} is no multiple of num_key_value_heads {}",
                                attention.heads, attention.kv_heads));
    }
  }
}

}  // namespace

std::span<const ModelArchitecture> model_architectures() { return kArchitectures; }

const ModelArchitecture* find_architecture(std::string_view model_type) {
  const auto found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(),
                   [&](const ModelArchitecture& entry) { return entry.model_type == model_type; });
  return found == kArchitectures.end() ? nullptr : &*found;
}

Result<ModelSpec> spec_from_config(const std::string& text, const std::string& source,
                                   std::int64_t sequence_length) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return user_error(
        fmt::format("{}: not a JSON object; give a model's config.json, or its directory", source));
  }
  // A model that also sees has its text half's settings below.
  if (json.contains("text_config") && json["text_config"].is_object()) {
    nlohmann::json text_half = json["text_config"];
    json = std::move(text_half);
  }
  ModelConfig config(json, source, sequence_length);
  const std::string type = config.text_or({"model_type"}, "");
  TRAIN_RETURN_IF_ERROR(config.status());
  const ModelArchitecture* architecture = find_architecture(type);
  if (architecture == nullptr) {
    return user_error(
        fmt::format("{}: model_type \"{}\" is not supported: {} are", source, type, known_types()));
  }
  refuse_unsupported(config);
  ModelSpec spec = architecture->make(config);
  spec.architecture = architecture->model_type;
  check_sizes(config, spec);
  TRAIN_RETURN_IF_ERROR(config.status());
  return spec;
}

}  // namespace train::engine
