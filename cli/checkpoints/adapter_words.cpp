#include "cli/checkpoints/adapter_words.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/check.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "engine/model/unit_parameters.hpp"

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kFirst = ".lora_A.weight";

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

/// The last parts of the adapted maps' names, where these name all of them and nothing else; else
/// their whole names.
std::vector<std::string> target_modules(const engine::ModelSpec& model) {
  std::set<std::string> parts;
  std::vector<std::string> whole;
  for (const checkpoint::ExportAdapter& adapter : adapters_of(model)) {
    whole.push_back(adapter.weight.substr(0, adapter.weight.size() - kWeight.size()));
    parts.insert(last_part(whole.back()));
  }
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      const bool matrix =
          !parameter.adapter && !parameter.is_vector() && parameter.name.ends_with(kWeight);
      const std::string module = parameter.name.substr(0, parameter.name.rfind('.'));
      if (matrix && parts.contains(last_part(module)) && !model.lora.adapts(module)) {
        return whole;
      }
    }
  }
  return {parts.begin(), parts.end()};
}

}  // namespace

std::vector<checkpoint::ExportAdapter> adapters_of(const engine::ModelSpec& model, bool average) {
  std::vector<checkpoint::ExportAdapter> adapters;
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      if (!parameter.adapter) {
        continue;
      }
      if (parameter.name.ends_with(kFirst)) {
        const std::string map = parameter.name.substr(0, parameter.name.size() - kFirst.size());
        adapters.push_back({.weight = map + std::string(kWeight),
                            .transposed = model.transposed_linears,
                            .scale = static_cast<double>(model.lora.scale()),
                            .a = exported(parameter, average),
                            .b = {}});
      } else {
        TRAIN_CHECK(!adapters.empty() && adapters.back().b.name.empty(), "{} comes without its A",
                    parameter.name);
        adapters.back().b = exported(parameter, average);
      }
    }
  }
  return adapters;
}

std::string adapter_config(const configs::RunConfig& config, const engine::ModelSpec& model) {
  Json object = {{"peft_type", "LORA"},
                 {"task_type", "CAUSAL_LM"},
                 {"base_model_name_or_path", nullptr},
                 {"r", config.lora.rank},
                 {"lora_alpha", config.lora.alpha},
                 {"target_modules", target_modules(model)},
                 {"lora_dropout", 0.0},
                 {"bias", "none"},
                 {"fan_in_fan_out", model.transposed_linears},
                 {"use_rslora", config.lora.rslora},
                 {"modules_to_save", nullptr},
                 {"inference_mode", true}};
  if (!config.model.from.empty()) {
    object["base_model_name_or_path"] = config.model.from;
  }
  if (std::floor(config.lora.alpha) == config.lora.alpha) {
    object["lora_alpha"] = static_cast<std::int64_t>(config.lora.alpha);
  }
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace train::cli
