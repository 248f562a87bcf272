#include "engine/model/architectures/architectures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/model/blocks/block.hpp"
#include "engine/model/config_json/config_keys.hpp"
#include "engine/model/config_json/dialects.hpp"
#include "engine/model/config_json/model_config.hpp"
#include "engine/model/experts/experts_block.hpp"

namespace train::engine {
namespace {

#define TRAIN_ARCHITECTURE_ENTRY(identifier, model_type, class_name) \
  {model_type, class_name, identifier##_keys, identifier##_model},
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

/// A model_type that transformers or its authors' code has, whose layers are not computed here.
struct UnsupportedType {
  std::string_view model_type;
  std::string_view needs;  ///< Unsupported part of its layers.
};
constexpr auto kUnsupported = std::to_array<UnsupportedType>({
    {"bamba", "attention among layers of Mamba-2"},
    {"granitemoehybrid", "attention among layers of Mamba-2, and factors of its branches"},
    {"nemotron_h", "layers of one branch, of Mamba-2, attention, MLP or experts"},
    {"falcon_h1", "attention and Mamba-2 side by side in a layer"},
    {"zamba", "a layer of attention that others share"},
    {"zamba2", "a layer of attention that others share"},
    {"lfm2", "gated short convolutions"},
    {"lfm2_moe", "gated short convolutions"},
    {"recurrent_gemma", "gated linear recurrences"},
    {"qwen3_next", "gated delta rules"},
    {"qwen3_5", "gated delta rules"},
    {"qwen3_5_text", "gated delta rules"},
    {"qwen3_5_moe", "gated delta rules"},
    {"qwen3_5_moe_text", "gated delta rules"},
    {"olmo_hybrid", "gated delta rules"},
    {"kimi_linear", "gated delta rules"},
    {"minimax", "lightning attention"},
    {"rwkv", "recurrences of RWKV"},
    {"xlstm", "recurrences of xLSTM"},
});

/// Why a model_type is refused.
std::string refusal_of(const std::string& type) {
  const auto found = std::find_if(kUnsupported.begin(), kUnsupported.end(),
                                  [&](const auto& one) { return one.model_type == type; });
  return found == kUnsupported.end()
             ? "is not supported"
             : fmt::format("is not supported, whose models have {}", found->needs);
}

/// Refuses experts in such numbers that even their list does not fit.
void check_expert_count(ModelConfig& config, const ModelSpec& spec) {
  constexpr std::int64_t kMostExperts = std::int64_t{1} << 20;
  std::int64_t experts = 0;
  for (const LayerSpec& layer : spec.layers) {
    const auto* block = find_block<ExpertsSpec>(layer);
    experts += block == nullptr ? 0 : block->experts;
  }
  if (experts > kMostExperts) {
    config.refuse(fmt::format("{} layers have {} experts in all: at most {} are possible",
                              spec.layers.size(), experts, kMostExperts));
  }
}

void check_sizes(ModelConfig& config, const ModelSpec& spec) {
  check_expert_count(config, spec);
  if (!spec.positions.empty() && config.sequence_length() > spec.position_rows) {
    config.refuse(fmt::format("data.sequence_length is {}, but the model has {} learned positions",
                              config.sequence_length(), spec.position_rows));
  }
  for (const LayerSpec& layer : spec.layers) {
    for (const BranchSpec& branch : layer.branches) {
      if (const std::string mistake = branch.block->mistake(); !mistake.empty()) {
        config.refuse(mistake);
      }
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

nlohmann::ordered_json language_model_config(const nlohmann::ordered_json& config) {
  const auto half = config.find("text_config");
  if (half == config.end() || !half->is_object()) {
    return config;
  }
  nlohmann::ordered_json text = *half;
  for (const auto& [key, value] : config.items()) {
    const ConfigKeys* known = find_config_key(key);
    const bool other_part =
        key.ends_with("_config") && (known == nullptr || known->use != KeyUse::refused);
    const bool names_whole = key == "model_type" || key == "architectures" || key == "auto_map";
    // The half's own go before, but for the head, which is tied or not as the whole says.
    if (!other_part && !names_whole &&
        (!text.contains(key) || (key == "tie_word_embeddings" && !value.is_null()))) {
      text[key] = value;
    }
  }
  const auto whole = config.find("model_type");
  if (!text.contains("model_type") && whole != config.end() && whole->is_string()) {
    const std::string type = whole->get<std::string>() + "_text";
    if (find_architecture(type) != nullptr) {
      text["model_type"] = type;
    }
  }
  return text;
}

Result<ModelSpec> spec_from_config(const std::string& text, const std::string& source,
                                   std::int64_t sequence_length) {
  auto json = nlohmann::ordered_json::parse(in_known_dialect(text), nullptr,
                                            /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return user_error(
        fmt::format("{}: not a JSON object; give a model's config.json, or its directory", source));
  }
  json = language_model_config(json);
  const auto type = json.find("model_type");
  if (type == json.end() || !type->is_string()) {
    return user_error(fmt::format("{}: model_type is {}: it must be a string, one of {}", source,
                                  type == json.end() ? "missing" : type->dump(), known_types()));
  }
  const ModelArchitecture* architecture = find_architecture(type->get<std::string>());
  if (architecture == nullptr) {
    return user_error(fmt::format("{}: model_type {} {}: {} are", source, type->dump(),
                                  refusal_of(type->get<std::string>()), known_types()));
  }
  nlohmann::json own = json;
  const auto defaults = nlohmann::json::parse(architecture->keys());
  ModelConfig config(own, defaults, source, sequence_length);
  ModelSpec spec = architecture->make(config);
  spec.architecture = architecture->model_type;
  check_sizes(config, spec);
  TRAIN_RETURN_IF_ERROR(config.finish(spec));
  return spec;
}

}  // namespace train::engine
