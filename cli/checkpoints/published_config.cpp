#include "cli/checkpoints/published_config.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.hpp"
#include "engine/model/architectures/architectures.hpp"

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

/// One rope's settings as rope_theta and rope_scaling.
void set_old_rope(Json& config, const Json& settings, const char* theta_key) {
  if (settings.contains("rope_theta")) {
    config[theta_key] = settings["rope_theta"];
  }
  if (settings.contains("partial_rotary_factor")) {
    config["partial_rotary_factor"] = settings["partial_rotary_factor"];
  }
  if (settings.value("rope_type", "default") == "default") {
    return;
  }
  Json scaling = settings;
  scaling.erase("rope_theta");
  scaling.erase("partial_rotary_factor");
  config["rope_scaling"] = std::move(scaling);
}

void use_old_ropes(Json& config) {
  const auto found = config.find("rope_parameters");
  if (found == config.end() || !found->is_object()) {
    return;
  }
  const Json parameters = *found;
  config.erase("rope_parameters");
  if (!parameters.contains("full_attention")) {
    set_old_rope(config, parameters, "rope_theta");
    return;
  }
  set_old_rope(config, parameters["full_attention"], "rope_theta");
  if (parameters.contains("sliding_attention")) {
    set_old_rope(config, parameters["sliding_attention"], "rope_local_base_freq");
  }
}

}  // namespace

Result<std::string> published_config(const std::string& config_text, const std::string& source,
                                     const engine::ModelSpec& model, storage::WeightType type) {
  Json config = Json::parse(config_text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return user_error(fmt::format("{}: not a JSON object", source));
  }
  if (config.contains("text_config") && config["text_config"].is_object()) {
    Json text_half = config["text_config"];
    config = std::move(text_half);
  }
  const engine::ModelArchitecture* architecture = engine::find_architecture(model.architecture);
  TRAIN_CHECK(architecture != nullptr, "{} is not published", model.architecture);
  config["architectures"] = {std::string(architecture->class_name)};
  config.erase("dtype");
  config.erase("quantization_config");  // What is written is not quantised.
  config["tie_word_embeddings"] = model.tie_embeddings;
  config["torch_dtype"] = storage::config_name(type);
  use_old_ropes(config);
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace train::cli
