#include "cli/checkpoints/published_config.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/config_json/rope_settings.hpp"

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFurtherLayers = "num_nextn_predict_layers";

/// Replaces all rope settings by those of `model`, in both dialects.
void say_ropes(Json& config, const engine::ModelSpec& model) {
  if (model.rope_keys.empty()) {
    return;
  }
  for (const std::string& key : engine::all_rope_keys()) {
    config.erase(key);
  }
  config.update(Json::parse(model.rope_keys));
}

}  // namespace

Result<std::string> published_config(const std::string& config_text, const std::string& source,
                                     const engine::ModelSpec& model, storage::WeightType type) {
  Json config = Json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return user_error(fmt::format("{}: not a JSON object", source));
  }
  config = engine::language_model_config(config);
  const engine::ModelArchitecture* architecture = engine::find_architecture(model.architecture);
  TRAIN_CHECK(architecture != nullptr, "{} is not published", model.architecture);
  config["architectures"] = {std::string(architecture->class_name)};
  config.erase("dtype");
  config.erase("quantization_config");  // The output is not quantised.
  config["tie_word_embeddings"] = model.tie_embeddings;
  config["torch_dtype"] = storage::config_name(type);
  if (model.kept.empty() && config.contains(kFurtherLayers)) {
    config[kFurtherLayers] = 0;  // Programs would look for their tensors.
  }
  say_ropes(config, model);
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace train::cli
