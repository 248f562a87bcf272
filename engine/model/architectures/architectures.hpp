#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

class ModelConfig;

/// An architecture of published models: what its `config.json` means. Every key that changes the
/// maths is read or refused; tensors are named as in its weights' files.
struct ModelArchitecture {
  std::string_view model_type;  ///< In config.json.
  std::string_view class_name;  ///< What `architectures` of an exported config.json says.
  ModelSpec (*make)(ModelConfig& config);
};

/// All that are known, by model_type. One file a family and one line here (architectures.cpp).
[[nodiscard]] std::span<const ModelArchitecture> model_architectures();
/// nullptr if there is none.
[[nodiscard]] const ModelArchitecture* find_architecture(std::string_view model_type);

/// The model that the text of a config.json describes. `source` names it in errors;
/// `sequence_length`: of the run (0: not known), which chooses longrope's factors and must not be
/// beyond what learned positions have.
/// Errors (user): no JSON, an unknown model_type (the line lists those that are known), a key that
/// is missing or has an impossible value, one that changes the maths and is not supported.
[[nodiscard]] Result<ModelSpec> spec_from_config(const std::string& text, const std::string& source,
                                                 std::int64_t sequence_length);

// The families.
[[nodiscard]] ModelSpec llama_model(ModelConfig& config);
[[nodiscard]] ModelSpec mistral_model(ModelConfig& config);
[[nodiscard]] ModelSpec qwen2_model(ModelConfig& config);
[[nodiscard]] ModelSpec qwen3_model(ModelConfig& config);
[[nodiscard]] ModelSpec gemma2_model(ModelConfig& config);
[[nodiscard]] ModelSpec gemma3_model(ModelConfig& config);
[[nodiscard]] ModelSpec phi3_model(ModelConfig& config);
[[nodiscard]] ModelSpec olmo2_model(ModelConfig& config);
[[nodiscard]] ModelSpec olmo3_model(ModelConfig& config);
[[nodiscard]] ModelSpec gpt_neox_model(ModelConfig& config);
[[nodiscard]] ModelSpec gpt2_model(ModelConfig& config);

}  // namespace train::engine
