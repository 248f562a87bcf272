#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
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
  std::string_view class_name;  ///< `architectures` in an exported config.json.
  /// The keys that it reads, and the values of those that a file lacks, which are those of
  /// transformers' configuration class: a JSON object.
  std::string_view (*keys)();
  ModelSpec (*make)(ModelConfig& config);
};

/// Every architecture, a line each: an identifier, ModelArchitecture::model_type and class_name.
/// <identifier>_model() makes it from <identifier>_keys(), in a file of its family. A macro,
/// because no constexpr table declares a function.
#define TRAIN_ARCHITECTURES(ARCHITECTURE)                              \
  ARCHITECTURE(llama, "llama", "LlamaForCausalLM")                     \
  ARCHITECTURE(mistral, "mistral", "MistralForCausalLM")               \
  ARCHITECTURE(ministral, "ministral", "MinistralForCausalLM")         \
  ARCHITECTURE(qwen2, "qwen2", "Qwen2ForCausalLM")                     \
  ARCHITECTURE(qwen3, "qwen3", "Qwen3ForCausalLM")                     \
  ARCHITECTURE(gemma2, "gemma2", "Gemma2ForCausalLM")                  \
  ARCHITECTURE(gemma3, "gemma3_text", "Gemma3ForCausalLM")             \
  ARCHITECTURE(phi3, "phi3", "Phi3ForCausalLM")                        \
  ARCHITECTURE(olmo2, "olmo2", "Olmo2ForCausalLM")                     \
  ARCHITECTURE(olmo3, "olmo3", "Olmo3ForCausalLM")                     \
  ARCHITECTURE(mixtral, "mixtral", "MixtralForCausalLM")               \
  ARCHITECTURE(olmoe, "olmoe", "OlmoeForCausalLM")                     \
  ARCHITECTURE(qwen2_moe, "qwen2_moe", "Qwen2MoeForCausalLM")          \
  ARCHITECTURE(qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM")          \
  ARCHITECTURE(deepseek_v3, "deepseek_v3", "DeepseekV3ForCausalLM")    \
  ARCHITECTURE(glm4_moe, "glm4_moe", "Glm4MoeForCausalLM")             \
  ARCHITECTURE(gpt_oss, "gpt_oss", "GptOssForCausalLM")                \
  ARCHITECTURE(mamba, "mamba", "MambaForCausalLM")                     \
  ARCHITECTURE(falcon_mamba, "falcon_mamba", "FalconMambaForCausalLM") \
  ARCHITECTURE(mamba2, "mamba2", "Mamba2ForCausalLM")                  \
  ARCHITECTURE(jamba, "jamba", "JambaForCausalLM")                     \
  ARCHITECTURE(hymba, "hymba", "HymbaForCausalLM")                     \
  ARCHITECTURE(gpt_neox, "gpt_neox", "GPTNeoXForCausalLM")             \
  ARCHITECTURE(gpt2, "gpt2", "GPT2LMHeadModel")

/// All that are known, in the order of the list.
[[nodiscard]] std::span<const ModelArchitecture> model_architectures();
/// nullptr if there is none.
[[nodiscard]] const ModelArchitecture* find_architecture(std::string_view model_type);

/// Model that the text of a config.json describes. `source` names the text in errors;
/// `sequence_length`: the run's (0: not known), which chooses longrope's factors and must not
/// exceed the learned positions.
/// A key that the text lacks has transformers' default. For a model that also sees or hears the
/// result is the language model, with the keys of the whole that concern it.
/// Errors (user): no JSON, an unknown model_type (the line lists the known ones), a key with an
/// impossible value, a key that changes the maths and is not supported. Unknown keys are listed in
/// ModelSpec::unread_keys.
[[nodiscard]] Result<ModelSpec> spec_from_config(const std::string& text, const std::string& source,
                                                 std::int64_t sequence_length);

/// The text half of a model that also sees or hears, with the keys of the whole that it lacks;
/// anything else as it is. REQUIRES: an object.
[[nodiscard]] nlohmann::ordered_json language_model_config(const nlohmann::ordered_json& config);

// Declares the functions that make an architecture.
#define TRAIN_ARCHITECTURE_MAKER(identifier, model_type, class_name) \
  [[nodiscard]] std::string_view identifier##_keys();                \
  [[nodiscard]] ModelSpec identifier##_model(ModelConfig& config);
TRAIN_ARCHITECTURES(TRAIN_ARCHITECTURE_MAKER)
#undef TRAIN_ARCHITECTURE_MAKER

}  // namespace train::engine
